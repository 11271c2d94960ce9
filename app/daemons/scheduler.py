"""The scheduler loop: waits for the bell or the poll, then turns the wheel once."""

import asyncio
import time

from app.daemons.leadership import Leadership
from app.db.errors import DatabaseError, EpochOver, Unavailable
from app.db.pg_store import PgStore
from app.model import Policy
from app.runtime.logs import logger
from app.runtime.stopping import wait_for
from app.scheduling import TickReport, tick

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0
SLOW_TICK_S = 0.5


class Scheduler:
    """Decides while this controller leads. `bell` is rung by notifications and by our own API."""

    def __init__(
        self, store: PgStore, leadership: Leadership, bell: asyncio.Event, *, policy: Policy
    ) -> None:
        self._store = store
        self._leadership = leadership
        self._bell = bell
        self._policy = policy
        self._retry_s = RETRY_FIRST_S
        self._was_fruitless = False

    async def run(self) -> None:
        """Turn the wheel for ever."""
        while True:
            self._store.epoch = await self._leadership.wait()
            # Cleared before it looks: what is rung from here on is seen by the next turn.
            self._bell.clear()
            try:
                report = await self._turn()
                self._retry_s = RETRY_FIRST_S
            except EpochOver:
                self._leadership.lose()
                continue
            except Unavailable as error:
                logger().warning("tick_unavailable", detail=str(error), retry_s=self._retry_s)
                await self._pause()
                continue
            except DatabaseError as error:
                # A fault of ours must not end the API with the scheduler, nor spin.
                logger().error("tick_failed", exc_info=error)
                await self._pause()
                continue
            if not self._looks_again_at_once(report):
                await wait_for(self._bell, timeout_s=self._leadership.settings["poll_s"])

    async def _pause(self) -> None:
        await asyncio.sleep(self._retry_s)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    async def _turn(self) -> TickReport:
        started_s = time.monotonic()
        report = await tick(self._store, self._policy)
        took_s = time.monotonic() - started_s
        if report.refused or took_s > SLOW_TICK_S:
            logger().info(
                "tick",
                decided=report.decided,
                accepted=report.accepted,
                refused=report.refused,
                took_ms=round(took_s * 1000),
            )
        return report

    def _looks_again_at_once(self, report: TickReport) -> bool:
        """After a refusal the picture was old; but two turns that moved nothing must not spin."""
        is_fruitless = report.is_due_again and report.accepted == 0
        again = report.is_due_again and not (is_fruitless and self._was_fruitless)
        self._was_fruitless = is_fruitless
        return again
