"""The worker's link over PostgreSQL: its host's own login, four functions, one channel."""

import asyncio
from typing import LiteralString

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.doorbell import Doorbell, Listener, host_channel
from app.db.errors import DatabaseError, translated
from app.db.ticket_link import TicketLink
from app.runtime.logs import logger

REGISTER = "select xce.worker_register(%s, %s, %s::text::jsonb, %s, %s, %s)::text"
FETCH = "select xce.worker_fetch(%s, %s, %s::float8::numeric, %s)::text"
REPORT = "select xce.worker_report(%s, %s::text::jsonb)::text"


class _Answer(msgspec.Struct):
    """The members of an answer that concern the link itself."""

    host_id: int | None = None
    rings: list[str] = []


class WorkerLink:
    """Fetch, report and the bell. Raises ConnectionError whenever no answer came.

    It reconnects by itself with the next call; how soon to call again is the caller's to decide.
    """

    def __init__(self, url: str) -> None:
        self.bell = asyncio.Event()
        self._url = url
        self._conn: AsyncConnection[TupleRow] | None = None
        self._doorbell = Doorbell(url)
        self._listening: asyncio.Task[None] | None = None
        self._channel = ""
        self._rings: set[asyncio.Task[None]] = set()
        self._tickets = TicketLink(url)

    async def register(
        self,
        boot_id: str,
        version: str,
        live: bytes,
        *,
        folder: str,
        door: tuple[str, str] | None = None,
    ) -> bytes:
        said = (boot_id, version, live.decode(), folder, *(door or _NO_DOOR))
        answer = await self._ask(REGISTER, said)
        host_id = _ANSWER.decode(answer).host_id
        if host_id is not None:
            await self._listen(host_channel(host_id))
        return answer

    async def fetch(
        self, incarnation: int, *, is_clear: bool, fence_s: float | None, is_full: bool
    ) -> bytes:
        return await self._ask(FETCH, (incarnation, is_clear, fence_s, is_full))

    async def report(self, incarnation: int, reports: bytes) -> bytes:
        return await self._ask(REPORT, (incarnation, reports.decode()))

    async def redeem(self, incarnation: int, sha256: bytes) -> bytes | None:
        return await self._tickets.redeem(incarnation, sha256)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        for ring in self._rings:
            ring.cancel()
        await self._disconnect()
        await self._tickets.close()
        await self._doorbell.close()

    async def _ask(self, call: LiteralString, arguments: tuple[object, ...]) -> bytes:
        try:
            with translated():
                conn = await self._connected()
                # Prepared from the first time on: a worker says three things all its life.
                cursor = await conn.execute(call, arguments, prepare=True)
                row = await cursor.fetchone()
        except (DatabaseError, psycopg.Error) as error:
            # Also a refused login or a function that no migration has made yet: a worker waits
            # for an operator to put that right, with its tasks alive.
            await self._disconnect()
            raise ConnectionError(str(error)) from error
        assert row is not None
        answer: bytes = row[0].encode()
        self._ring(_ANSWER.decode(answer).rings)
        return answer

    def _ring(self, channels: list[str]) -> None:
        """Ring beside the caller: a process must not wait for somebody else's bell."""
        if channels:
            ring = asyncio.create_task(self._doorbell.ring(channels))
            self._rings.add(ring)
            ring.add_done_callback(self._rings.discard)

    async def _listen(self, channel: str) -> None:
        if channel == self._channel:
            return
        if self._listening is not None:
            self._listening.cancel()
        listener = Listener(self._url, [channel])
        # One event for whatever channel it is, so that the waiter need not know of a change.
        self.bell = listener.event(channel)
        self._channel = channel
        self._listening = asyncio.create_task(listener.run())
        self._listening.add_done_callback(_log_failure)

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._url, application="xce worker")
        return self._conn

    async def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()


def _log_failure(listening: asyncio.Task[None]) -> None:
    # Without a listener the poll still finds everything (R7), so a faulty one ends nothing.
    if not listening.cancelled() and (error := listening.exception()) is not None:
        logger().error("listener_failed", detail=str(error))


_NO_DOOR = (None, None)
_ANSWER = msgspec.json.Decoder(_Answer)
