"""The leader's lease: a row on the database's clock, kept alive on a connection of its own."""

from typing import LiteralString

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.errors import Unavailable, translated
from app.runtime.clock import elapsed_s

TAKE = "select is_leader, epoch, expires_in_s from xce.take_lease(%s)"
DROP = "select xce.drop_lease(%s)"
SETTINGS = "select name, value::double precision from xce.setting"


class Lease:
    """Who leads, as far as this process can know; the fence in the database decides (R8)."""

    def __init__(self, url: str, holder: str) -> None:
        self._url = url
        self._holder = holder
        self._conn: AsyncConnection[TupleRow] | None = None
        self._epoch: int | None = None
        self._ends_at_s = 0.0

    @property
    def epoch(self) -> int | None:
        """The epoch this process leads; None when it does not, or cannot be sure any more."""
        # Counted from before the renewal was sent, so this clock only ever ends the lease early.
        return self._epoch if elapsed_s() < self._ends_at_s else None

    async def renew(self) -> int | None:
        """Take the lease or keep it; the epoch when that worked. Raises Unavailable."""
        sent_at_s = elapsed_s()
        [(is_leader, epoch, expires_in_s)] = await self._rows(TAKE, self._holder)
        self._epoch = int(epoch) if is_leader else None
        self._ends_at_s = sent_at_s + float(expires_in_s)
        return self.epoch

    async def settings(self) -> dict[str, float]:
        """All settings by name, as they are now. Raises Unavailable."""
        return dict(await self._rows(SETTINGS))

    def forget(self) -> None:
        """The database said that the epoch is over."""
        self._epoch = None

    async def drop(self) -> None:
        """Give the lease back, so that a successor need not wait. Raises Unavailable."""
        self._epoch = None
        try:
            await self._rows(DROP, self._holder)
        finally:
            await self._disconnect()

    async def _rows(self, query: LiteralString, *values: str) -> list[TupleRow]:
        try:
            with translated():
                if self._conn is None or self._conn.closed:
                    self._conn = await connect(self._url, application="xce lease")
                return await (await self._conn.execute(query, values)).fetchall()
        except Unavailable:
            await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None
