"""The leader's chores: each one call on a timer of its own, and no state between two calls."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from app.daemons.leadership import Leadership
from app.daemons.silence import Silence
from app.db.chores import Housekeeping
from app.db.doorbell import Doorbell
from app.db.errors import DatabaseError, EpochOver, Unavailable
from app.runtime.logs import logger

Call = Callable[[int], Awaitable[list[str]]]
WATCH_S = 5.0


@dataclass(frozen=True)
class Chore:
    """One call, every so often."""

    name: str
    call: Call
    every_s: float


class Chores:
    """Runs the chores while this controller leads."""

    def __init__(self, url: str, leadership: Leadership, doorbell: Doorbell) -> None:
        self._leadership = leadership
        self._doorbell = doorbell
        self._housekeeping = Housekeeping(url)
        self._turn = asyncio.Lock()
        self._chores = (
            Chore("sweep_silence", Silence(self._housekeeping, leadership).sweep, 1.0),
            Chore("sweep_deadlines", self._housekeeping.sweep_deadlines, 1.0),
            Chore("settle_due", self._housekeeping.settle_due, 2.0),
            Chore("expire_rows", self._housekeeping.expire_rows, 60.0),
        )

    async def run(self) -> None:
        """Keep the timers going for ever; new ones replace those that died."""
        while True:
            timers = self._timers()
            timers.start()
            try:
                while timers.running:
                    await asyncio.sleep(WATCH_S)
            finally:
                if timers.running:
                    timers.shutdown(wait=False)
            logger().error("chores_died")

    async def close(self) -> None:
        await self._housekeeping.close()

    def _timers(self) -> AsyncIOScheduler:
        timers = AsyncIOScheduler(
            timezone="UTC",
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        for chore in self._chores:
            timers.add_job(self._do, "interval", args=[chore], seconds=chore.every_s, id=chore.name)
        return timers

    async def _do(self, chore: Chore) -> None:
        # They share one connection: the chores are short, and an idle controller should be small.
        async with self._turn:
            epoch = self._leadership.epoch
            if epoch is None:
                return
            try:
                rings = await chore.call(epoch)
            except EpochOver:
                self._leadership.lose()
                return
            except Unavailable as error:
                logger().warning("chore_unavailable", chore=chore.name, detail=str(error))
                return
            except DatabaseError as error:
                # A fault of ours: the others go on, and the log has it every time.
                logger().error("chore_failed", chore=chore.name, exc_info=error)
                return
        await self._doorbell.ring(rings)
