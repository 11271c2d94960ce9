"""Redeems tickets over a connection of its own, which is there only while visitors come."""

import asyncio

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.errors import DatabaseError, translated

REDEEM = "select xce.worker_redeem(%s, %s)::text"
IDLE_S = 30.0
#: Visitors who come while the database is slow are turned away rather than queued without end.
WAITING_MAX = 32
ANSWER_S = 5.0


class TicketLink:
    """One question after the other; whatever visitors do, the worker's own link notices nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: AsyncConnection[TupleRow] | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._closing: asyncio.Task[None] | None = None

    async def redeem(self, incarnation: int, sha256: bytes) -> bytes | None:
        """What the ticket is good for; None for no valid one. Raises ConnectionError."""
        if self._waiting >= WAITING_MAX:
            raise ConnectionError("too many tickets at once")
        self._waiting += 1
        try:
            async with asyncio.timeout(ANSWER_S), self._turn:
                return await self._ask(incarnation, sha256)
        except TimeoutError:
            raise ConnectionError(f"no answer within {ANSWER_S:g} s") from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        await self._drop()

    async def _ask(self, incarnation: int, sha256: bytes) -> bytes | None:
        try:
            with translated():
                conn = await self._connected()
                cursor = await conn.execute(REDEEM, (incarnation, sha256), prepare=True)
                row = await cursor.fetchone()
        except (DatabaseError, psycopg.Error) as error:
            await self._drop()
            raise ConnectionError(str(error)) from error
        except asyncio.CancelledError:
            await self._drop()
            raise
        self._close_later()
        return row[0].encode() if row and row[0] is not None else None

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._url, application="xce worker tickets")
        return self._conn

    def _close_later(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.create_task(self._close_when_idle())

    async def _close_when_idle(self) -> None:
        await asyncio.sleep(IDLE_S)
        async with self._turn:
            await self._drop()

    async def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()
