"""An open stream of events: what was missed page by page, then what comes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from litestar import Response
from litestar.types import Receive, Scope, Send

from app.api.feed import Feed, Follower, framed
from app.db.accounts import Caller
from app.db.batch import Connection
from app.db.errors import Unavailable
from app.db.feed import Cursor, Read, Wanted, read_feed
from app.runtime.logs import logger
from app.runtime.stopping import cancelled

HEARTBEAT_S = 15.0
#: A revoked token ends its stream after so long at most; DESIGN gives it a minute.
TOKEN_CHECK_S = 30.0
PAGE = 500
RETRY_S = 0.5
#: So long a reader that does not read may keep us from ending its answer in good form.
FAREWELL_S = 1.0
HEARTBEAT = b": heartbeat\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Without it nginx gathers what should go out at once.
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
]

Found = TypeVar("Found")
Lend = Callable[[], contextlib.AbstractAsyncContextManager[Connection]]
StillValid = Callable[[], Awaitable[bool]]


class EventStream:
    """One caller's stream, from a cursor on."""

    def __init__(self, feed: Feed, lend: Lend, *, heartbeat_s: float, token_check_s: float) -> None:
        self._feed = feed
        self._lend = lend
        self._heartbeat_s = heartbeat_s
        self._token_check_s = token_check_s

    def answer(
        self, caller: Caller, wanted: Wanted, after: Cursor, *, still_valid: StillValid
    ) -> "StreamAnswer":
        """What a handler returns; it opens the stream when it is sent, and may be refused then."""

        async def serve(receive: Receive, send: Send) -> None:
            with self._feed.admitted(caller, wanted) as follower:
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                await self._serve(follower, after, (receive, send), still_valid)

        return StreamAnswer(serve)

    async def _serve(
        self,
        follower: Follower,
        after: Cursor,
        wire: tuple[Receive, Send],
        still_valid: StillValid,
    ) -> None:
        """Send until the reader goes, falls behind, loses its right, or this process stops."""
        receive, send = wire
        sending = asyncio.create_task(self._send_all(follower, after, send))
        leaving = asyncio.create_task(gone(receive))
        others = [
            asyncio.create_task(follower.ended.wait()),
            asyncio.create_task(self._refused(still_valid)),
        ]
        tasks = [sending, leaving, *others]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_gone = leaving.done()
            ends = await cancelled(*tasks)
        for end in ends:
            if isinstance(end, Exception):
                logger().error("stream_fault", exc_info=end)
        if not is_gone:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await _send_body(send, b"", is_last=True)

    async def _send_all(self, follower: Follower, after: Cursor, send: Send) -> None:
        # The reader sees at once that it is connected, also while nothing happens.
        await _send_body(send, HEARTBEAT)
        async for reached, frames in self._missed(follower, after):
            after = reached
            await _send_body(send, frames)
        while True:
            taken = await follower.take(timeout_s=self._heartbeat_s)
            # What the pages had already, because they read further than the fan-out was.
            frames = b"".join(frame for cursor, frame in taken if cursor > after)
            after = max([after, *(cursor for cursor, _ in taken)])
            if frames or not taken:
                await _send_body(send, frames or HEARTBEAT)

    async def _missed(
        self, follower: Follower, after: Cursor
    ) -> AsyncIterator[tuple[Cursor, bytes]]:
        """Pages up to the end, then again up to where the fan-out takes over."""
        for is_joined in (False, True):
            if is_joined:
                await self._again(lambda: self._feed.join(follower))
            is_end = False
            while not is_end:
                page = await self._again(lambda: self._read(follower.wanted, after))  # noqa: B023
                after, is_end = page.reached, page.is_end
                frames = b"".join(framed(entry) for entry in page.entries)
                if frames or not is_end:
                    yield after, frames or HEARTBEAT

    async def _read(self, wanted: Wanted, after: Cursor) -> Read:
        async with self._lend() as conn:
            return await read_feed(conn, after, limit=PAGE, wanted=wanted)

    async def _again(self, act: Callable[[], Awaitable[Found]]) -> Found:
        """Until the database is back: the reader need not notice that it was away."""
        while True:
            try:
                return await act()
            except Unavailable:
                await asyncio.sleep(RETRY_S)

    async def _refused(self, still_valid: StillValid) -> None:
        """Return once the token is valid no more."""
        while True:
            await asyncio.sleep(self._token_check_s)
            with contextlib.suppress(Unavailable):
                if not await still_valid():
                    return


class StreamAnswer(Response[bytes]):
    """A stream in the place of a body."""

    def __init__(self, serve: Callable[[Receive, Send], Awaitable[None]]) -> None:
        super().__init__(b"")
        self._serve = serve

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """The application that sends it."""

        async def call(_: Scope, receive: Receive, send: Send) -> None:
            await self._serve(receive, send)

        return call


async def _send_body(send: Send, body: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def gone(receive: Receive) -> None:
    """Return when the reader has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
