"""The leader's housekeeping: routines that look for what time has made due."""

from datetime import datetime
from typing import Any, LiteralString

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.errors import Unavailable, translated

SWEEP_SILENCE = "select * from xce.sweep_silence(%s, null, %s)"
SWEEP_LOSSES = "select * from xce.sweep_losses(%s, null, %s)"
SWEEP_DEADLINES = "select xce.sweep_deadlines(%s)"
SETTLE_DUE = "select xce.settle_due(%s)"
EXPIRE_ROWS = "select xce.expire_rows()"


class Sweep(Struct, frozen=True):
    """What a look for lost hosts or tasks came to: `judged`, or why not: `jumped` or `paused`.

    `at` is the database's clock then, `found` how many hosts had been silent for too long, or how
    many tasks were lost.
    """

    rings: list[str]
    at: datetime
    verdict: str
    found: int


class Housekeeping:
    """One connection for all chores; each answers the channels to ring. Raises Unavailable."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: AsyncConnection[TupleRow] | None = None

    async def sweep_silence(self, epoch: int, expected: datetime | None) -> Sweep:
        """Hosts that have been silent for too long are lost, unless the clock has jumped.

        `expected` is what the database's clock should say now; None where nobody can tell.
        """
        return Sweep(*await self._row(SWEEP_SILENCE, epoch, expected))

    async def sweep_losses(self, epoch: int, expected: datetime | None) -> Sweep:
        """Tasks of lost hosts whose fence and grace are over end, and their jobs by their policy.

        Nothing does while the clock has jumped away from `expected`.
        """
        return Sweep(*await self._row(SWEEP_LOSSES, epoch, expected))

    async def sweep_deadlines(self, epoch: int) -> list[str]:
        """Requests and starts whose time is up end."""
        return await self._rings(SWEEP_DEADLINES, epoch)

    async def settle_due(self, epoch: int) -> list[str]:
        """Edges that follow from recorded facts and were not fired when those were recorded."""
        return await self._rings(SETTLE_DUE, epoch)

    async def expire_rows(self, epoch: int) -> list[str]:
        """Keys and ticks past their time go, months of history are made; takes no epoch."""
        return await self._rings(EXPIRE_ROWS)

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def _rings(self, query: LiteralString, *values: int) -> list[str]:
        (rings,) = await self._row(query, *values)
        return list(rings or [])

    async def _row(self, query: LiteralString, *values: Any) -> TupleRow:
        try:
            with translated():
                if self._conn is None or self._conn.closed:
                    self._conn = await connect(self._url, application="xce chores")
                row = await (await self._conn.execute(query, values)).fetchone()
        except Unavailable:
            await self.close()
            raise
        if row is None:
            raise AssertionError("a chore always answers")
        return row
