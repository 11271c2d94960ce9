"""When silent hosts, and the tasks of lost ones, may be judged at all (PROTOCOL 32)."""

from datetime import datetime, timedelta

from app.daemons.leadership import Leadership
from app.db.chores import Housekeeping
from app.runtime.clock import elapsed_s
from app.runtime.logs import logger

SAY_AGAIN_S = 30.0


class Silence:
    """The chore that finds lost hosts and gives their tasks up, and its doubts.

    A new leader cannot tell a silent host from one that could not reach the database while nobody
    led; a clock that jumped makes all hosts look silent; and many that fall silent together are
    more likely cut off than dead. Then it waits, and says so.
    """

    def __init__(self, housekeeping: Housekeeping, leadership: Leadership) -> None:
        self._housekeeping = housekeeping
        self._leadership = leadership
        self._seen: tuple[datetime, float] | None = None
        self._doubts_until_s = 0.0
        self._said_at_s = -SAY_AGAIN_S

    async def sweep(self, epoch: int) -> list[str]:
        """The channels to ring. Raises Unavailable, EpochOver."""
        silent_s = self._leadership.settings["silent_s"]
        if self._leadership.leads_for_s < silent_s:
            self._seen = None
            return []
        if elapsed_s() < self._doubts_until_s:
            return []
        found = await self._housekeeping.sweep_silence(epoch, self._expected())
        self._seen = (found.at, elapsed_s())
        if found.verdict == "jumped":
            self._doubts_until_s = elapsed_s() + silent_s
            self._seen = None
            logger().warning("database_clock_jumped", at=str(found.at), waits_s=silent_s)
        elif found.verdict == "paused" and elapsed_s() - self._said_at_s >= SAY_AGAIN_S:
            self._said_at_s = elapsed_s()
            logger().error("many_hosts_silent", silent=found.found, judged="not")
        return found.rings + await self._give_up_tasks(epoch)

    async def _give_up_tasks(self, epoch: int) -> list[str]:
        """By the clock that was believed a moment ago; `_expected` is None where it was not."""
        if self._seen is None:
            return []
        found = await self._housekeeping.sweep_losses(epoch, self._expected())
        if found.found:
            logger().warning("tasks_lost", tasks=found.found)
        return found.rings

    def _expected(self) -> datetime | None:
        if self._seen is None:
            return None
        at, read_at_s = self._seen
        return at + timedelta(seconds=elapsed_s() - read_at_s)
