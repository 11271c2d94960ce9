"""The live world as app.scheduling sees it: one snapshot in, decisions out, on one connection."""

from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.doorbell import Doorbell
from app.db.errors import DatabaseError, EpochOver, Unavailable, translated
from app.db.snapshot_rows import snapshot_of
from app.db.statements import statement
from app.model import Applied, Outcome, Plan, Snapshot
from app.runtime.logs import logger

APPLY = "select accepted, code, rings from xce.apply_plan(%s, %s::jsonb) order by ordinal"


class PgStore:
    """A Store over PostgreSQL. `epoch` is the leader's, set by whoever turns the wheel."""

    def __init__(self, url: str, doorbell: Doorbell) -> None:
        self.epoch = 0
        self._url = url
        self._doorbell = doorbell
        self._conn: AsyncConnection[TupleRow] | None = None

    async def snapshot(self) -> Snapshot:
        """Everything a tick needs, of one moment. Raises Unavailable."""
        [row] = await self._rows(statement("snapshot"), is_binary=True)
        return snapshot_of(row)

    async def apply(self, plan: Plan) -> Applied:
        """Try the decisions in one transaction, then ring. Raises Unavailable and EpochOver.

        Where the transaction fails for a fault of ours, each is tried alone, so that one that the
        database cannot take holds up no other; that one is refused as `fault`.
        """
        try:
            rows = await self._rows(APPLY, self.epoch, msgspec.json.encode(plan).decode())
        except (Unavailable, EpochOver):
            raise
        except DatabaseError as error:
            if len(plan.decisions) > 1:
                return _joined([await self.apply(one) for one in plan.chunks(1)])
            logger().error("decision_failed", decision=plan.decisions, exc_info=error)
            return Applied((Outcome(False, "fault"),))
        outcomes = tuple(Outcome(accepted, code) for accepted, code, _ in rows)
        rings = tuple(rows[0][2]) if rows else ()
        await self._doorbell.ring(rings)
        return Applied(outcomes, rings)

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def _rows(self, query: str, *values: Any, is_binary: bool = False) -> list[TupleRow]:
        try:
            with translated():
                conn = await self._connected()
                cursor = await conn.execute(query.encode(), values, binary=is_binary)
                return await cursor.fetchall()
        except Unavailable:
            await self.close()
            raise

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._url, application="xce scheduler")
            self._conn.prepare_threshold = 1
        return self._conn


def _joined(parts: list[Applied]) -> Applied:
    outcomes = tuple(outcome for part in parts for outcome in part.outcomes)
    return Applied(outcomes, tuple(ring for part in parts for ring in part.rings))
