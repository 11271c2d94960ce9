"""The fan-out: reads each new event once for all who follow, and asks once for all who wait.

While nobody does either it has no connection and asks nothing.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager

from app.api.metrics import SLOW_READERS, STREAMS
from app.api.problems import Refusal
from app.db.accounts import Caller
from app.db.batch import Connection
from app.db.doorbell import WATCH, Listener
from app.db.errors import Unavailable
from app.db.feed import START, Cursor, Entry, Wanted, feed_end, finished_requests, read_feed
from app.runtime.logs import logger
from app.runtime.stopping import cancelled, wait_for
from app.wire.encoding import encode

#: So many events are read at once, and so many may wait for a reader until it is dropped.
BATCH = 500
QUEUE_MAX = 2_000
RETRY_S = 0.5
#: While rows wait for a transaction that is still open, which need not ring when it ends.
HELD_BACK_FIRST_S = 0.02

Frame = tuple[Cursor, bytes]


class Follower:
    """Somebody with an open stream. `ended` is set when the stream has to end."""

    def __init__(self, caller: Caller, wanted: Wanted) -> None:
        self.caller = caller
        self.wanted = wanted
        self.ended = asyncio.Event()
        self._queue: deque[Frame] = deque()
        self._arrived = asyncio.Event()

    def put(self, frame: Frame) -> None:
        """Hand over an event; a reader that is too slow is dropped and resumes by its cursor."""
        if len(self._queue) >= QUEUE_MAX:
            SLOW_READERS.inc()
            logger().info("slow_reader_dropped", user=self.caller.name)
            self.ended.set()
            return
        self._queue.append(frame)
        self._arrived.set()

    async def take(self, *, timeout_s: float) -> list[Frame]:
        """What was handed over, nothing when the time is up first."""
        await wait_for(self._arrived, timeout_s=timeout_s)
        self._arrived.clear()
        taken = list(self._queue)
        self._queue.clear()
        return taken


class Feed:
    """One in a process. `lend` gives a connection, or raises Unavailable."""

    def __init__(
        self,
        url: str,
        lend: Callable[[], AbstractAsyncContextManager[Connection]],
        *,
        poll_s: float,
        streams_max: int,
    ) -> None:
        self._url = url
        self._lend = lend
        self._poll_s = poll_s
        self._streams_max = streams_max
        self._open: set[Follower] = set()
        self._live: set[Follower] = set()
        self._waits: dict[int, set[asyncio.Event]] = {}
        self._head = START
        self._held_back_s = HELD_BACK_FIRST_S
        self._needed = asyncio.Event()
        self._is_closed = False

    async def run(self) -> None:
        """Serve for ever."""
        while True:
            await self._needed.wait()
            listener = Listener(self._url, [WATCH])
            listening = asyncio.create_task(listener.run())
            try:
                await self._attend(listener.event(WATCH))
            finally:
                await cancelled(listening)

    def close(self) -> None:
        """End all streams and waits, because this process stops."""
        self._is_closed = True
        for follower in self._open:
            follower.ended.set()
        for events in self._waits.values():
            for event in events:
                event.set()

    @contextlib.contextmanager
    def admitted(self, caller: Caller, wanted: Wanted) -> Iterator[Follower]:
        """A place for one more stream of this caller. Raises Refusal."""
        count = sum(follower.caller.user_id == caller.user_id for follower in self._open)
        if count >= self._streams_max:
            raise Refusal(
                "too_many",
                f"you have {count} open streams here; end one of them first",
                streams=count,
                streams_max=self._streams_max,
            )
        follower = Follower(caller, wanted)
        if self._is_closed:
            follower.ended.set()
        self._open.add(follower)
        try:
            with STREAMS.track_inprogress():
                yield follower
        finally:
            self._open.discard(follower)
            self._live.discard(follower)
            self._rest()

    async def join(self, follower: Follower) -> None:
        """From now on hand it all that comes after what the feed shows now. Raises Unavailable."""
        async with self._lend() as conn:
            end = await feed_end(conn)
        # Whoever is first sets the head; it may not be moved under the others.
        if not self._live:
            self._head = end.cursor
        self._live.add(follower)
        self._needed.set()

    @contextlib.contextmanager
    def awaited(self, request_id: int) -> Iterator[asyncio.Event]:
        """An event that is set once the request is final, or this process stops."""
        event = asyncio.Event()
        if self._is_closed:
            event.set()
        self._waits.setdefault(request_id, set()).add(event)
        self._needed.set()
        try:
            yield event
        finally:
            self._waits[request_id].discard(event)
            if not self._waits[request_id]:
                del self._waits[request_id]
            self._rest()

    def _rest(self) -> None:
        if not self._live and not self._waits:
            self._needed.clear()

    async def _attend(self, bell: asyncio.Event) -> None:
        """Look at each bell, and at each poll, until nobody is there any more."""
        while self._needed.is_set():
            # Cleared before it looks: what is rung from here on is seen by the next look.
            bell.clear()
            pause_s = await self._look()
            await wait_for(bell, timeout_s=pause_s)

    async def _look(self) -> float:
        """See what is new; how long to wait for a bell after that."""
        try:
            async with self._lend() as conn:
                await self._end_waits(conn)
                is_held_back = await self._hand_out(conn)
        except Unavailable as error:
            logger().warning("feed_unavailable", detail=str(error), retry_s=RETRY_S)
            return RETRY_S
        except Exception as error:
            # Without this one fault would silence every stream until the process is started again.
            logger().error("feed_fault", exc_info=error)
            return self._poll_s
        pause_s = min(self._held_back_s, self._poll_s) if is_held_back else self._poll_s
        self._held_back_s = 2 * pause_s if is_held_back else HELD_BACK_FIRST_S
        return pause_s

    async def _end_waits(self, conn: Connection) -> None:
        if not self._waits:
            return
        for request_id in await finished_requests(conn, self._waits):
            for event in self._waits.get(request_id, ()):
                event.set()

    async def _hand_out(self, conn: Connection) -> bool:
        """Hand each new event to those who may see it; whether more waits to be shown."""
        while self._live:
            read = await read_feed(conn, self._head, limit=BATCH)
            for entry in read.entries:
                self._offer(entry)
            # A first follower may have set it anew meanwhile.
            self._head = max(self._head, read.reached)
            if read.is_end:
                return (await feed_end(conn)).is_held_back
        return False

    def _offer(self, entry: Entry) -> None:
        frame = (entry.cursor, framed(entry))
        for follower in self._live:
            if follower.wanted.has(entry) and not follower.ended.is_set():
                follower.put(frame)


def framed(entry: Entry) -> bytes:
    """An event as server-sent events spell it."""
    event = entry.event
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        event.cursor.encode(),
        event.kind.encode(),
        encode(event),
    )
