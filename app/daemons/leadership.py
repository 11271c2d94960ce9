"""Keeps the lease and tells the other loops whether this controller leads, and since when."""

import asyncio

from app.db.errors import Unavailable
from app.db.lease import Lease
from app.runtime.clock import elapsed_s
from app.runtime.logs import logger

#: Until the database has told its own: what 0001_create_schema.sql sets.
FIRST_SETTINGS = {"lease_s": 5.0, "poll_s": 2.0, "silent_s": 30.0}
RETRY_S = 0.5


class Leadership:
    """The one place that knows the epoch; everybody asks it again before each act."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._known: int | None = None
        self._leads_since_s = 0.0
        self._leads = asyncio.Event()
        self.settings = FIRST_SETTINGS

    @property
    def epoch(self) -> int | None:
        return self._lease.epoch

    @property
    def leads_for_s(self) -> float:
        """How long this controller has been leading without a break."""
        return elapsed_s() - self._leads_since_s if self.epoch is not None else 0.0

    async def wait(self) -> int:
        """The epoch, as soon as this controller leads."""
        while (epoch := self.epoch) is None:
            self._leads.clear()
            await self._leads.wait()
        return epoch

    def lose(self) -> None:
        """The database refused the epoch."""
        self._lease.forget()
        self._note()

    async def run(self) -> None:
        """Renew the lease for ever, three times in each lease."""
        while True:
            try:
                await self._lease.renew()
                self.settings = {**FIRST_SETTINGS, **await self._lease.settings()}
                pause_s = self.settings["lease_s"] / 3
            except Unavailable as error:
                logger().warning("lease_unavailable", detail=str(error))
                pause_s = min(RETRY_S, self.settings["lease_s"] / 3)
            self._note()
            await asyncio.sleep(pause_s)

    async def drop(self) -> None:
        """Let a successor lead at once; when the database is away the lease ends by itself."""
        try:
            await self._lease.drop()
        except Unavailable as error:
            logger().warning("lease_not_dropped", detail=str(error))
        self._note()

    def _note(self) -> None:
        epoch = self.epoch
        if epoch is not None:
            self._leads.set()
        if epoch == self._known:
            return
        self._known = epoch
        self._leads_since_s = elapsed_s()
        logger().info("leads" if epoch is not None else "leads_no_more", epoch=epoch)
