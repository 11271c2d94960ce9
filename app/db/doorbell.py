"""Empty notifications that say "look": rung after a commit, and only ever a hint (DESIGN R7)."""

import asyncio
from collections.abc import Iterable

from psycopg import AsyncConnection, OperationalError, sql
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.errors import Unavailable, translated
from app.runtime.failpoints import DOORBELL_SWALLOWED, is_armed
from app.runtime.logs import logger

PLAN = "xce_plan"
WATCH = "xce_watch"
RING = "select pg_catalog.pg_notify(channel, '') from unnest(%s::text[]) as channel"
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0


def host_channel(host_id: int) -> str:
    """The channel that the worker of a host listens to."""
    return f"xce_host_{host_id}"


class Doorbell:
    """Rings channels on an autocommit connection of its own; a ring that fails is logged only."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: AsyncConnection[TupleRow] | None = None
        self._turn = asyncio.Lock()
        self._wanted: set[str] = set()
        self._swallows = is_armed(DOORBELL_SWALLOWED)

    async def open(self) -> None:
        """Connect early, so that the first ring is as fast as the next."""
        async with self._turn:
            try:
                await self._connected()
            except Unavailable as error:
                logger().warning("doorbell_unavailable", detail=str(error))

    async def ring(self, channels: Iterable[str]) -> None:
        """Notify these channels; what is asked for during a ring goes out together in the next."""
        self._wanted.update(channels)
        async with self._turn:
            wanted, self._wanted = sorted(self._wanted), set()
            if not wanted or self._swallows:
                return
            try:
                await self._ring(wanted)
            except Unavailable as error:
                logger().warning("doorbell_silent", channels=wanted, detail=str(error))

    async def close(self) -> None:
        async with self._turn:
            if self._conn is not None:
                await self._conn.close()
                self._conn = None

    async def _ring(self, channels: list[str]) -> None:
        try:
            with translated():
                await (await self._connected()).execute(RING, (channels,))
        except Unavailable:
            # The connection may have died long ago without anybody noticing: once more, anew.
            await self._drop()
            with translated():
                await (await self._connected()).execute(RING, (channels,))

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._url, application="xce doorbell")
        return self._conn

    async def _drop(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None


class Listener:
    """Turns notifications into events: one of each channel, cleared by whoever waits on it."""

    def __init__(self, url: str, channels: Iterable[str]) -> None:
        self._url = url
        self._events = {channel: asyncio.Event() for channel in channels}

    def event(self, channel: str) -> asyncio.Event:
        return self._events[channel]

    async def run(self) -> None:
        """Listen for ever; reconnects with a back-off, and after each connect sets all events."""
        retry_s = RETRY_FIRST_S
        while True:
            try:
                conn = await connect(self._url, application="xce listener")
                retry_s = RETRY_FIRST_S
                await self._listen(conn)
            except Unavailable as error:
                logger().warning("listener_unavailable", detail=str(error), retry_s=retry_s)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, RETRY_MAX_S)

    async def _listen(self, conn: AsyncConnection[TupleRow]) -> None:
        async with conn:
            with translated():
                for channel in self._events:
                    await conn.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
                # Only now, and again after each reconnect: whoever looked before the LISTEN may
                # have missed the ring that came in between.
                for event in self._events.values():
                    event.set()
            await self._hear(conn)

    async def _hear(self, conn: AsyncConnection[TupleRow]) -> None:
        """Set events until the connection ends. Raises Unavailable."""
        # Not psycopg's notifies(): it wakes up ten times a second to look for Ctrl-C, which alone
        # is more than an idle worker may cost.
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[None] = loop.create_future()
        # A connection that broke does not know its socket any more.
        socket = conn.fileno()

        def read() -> None:
            try:
                conn.pgconn.consume_input()
            except OperationalError as error:
                loop.remove_reader(socket)
                if not lost.done():
                    lost.set_exception(Unavailable(str(error)))
            while (notification := conn.pgconn.notifies()) is not None:
                self._events[notification.relname.decode()].set()

        loop.add_reader(socket, read)
        try:
            await lost
        finally:
            # Of a broken one the number may be another's by now.
            if not conn.closed:
                loop.remove_reader(socket)
