"""Answers that are relayed as they come: bounded in number, and ended with their client or us."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from litestar.types import Message, Receive, Send

from app.api.problems import Refusal
from app.api.stream import StreamAnswer, gone
from app.runtime.logs import logger
from app.runtime.stopping import cancelled

RELAYS_MAX = 512
RELAYS_OF_A_USER_MAX = 64
#: A client that takes nothing for so long is gone.
TAKE_S = 60.0


class BrokenOffError(Exception):
    """The answer ends before its end: its connection is cut, so that the client knows."""


@dataclass(frozen=True)
class Relayed:
    """The headers of an answer and the parts of its body, which may raise BrokenOffError."""

    headers: Mapping[str, str]
    parts: AsyncGenerator[bytes, None]


Opened = Callable[[], AbstractAsyncContextManager[Relayed]]


class Relays:
    """The answers that this API relays now."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()
        self._of_user: Counter[int] = Counter()

    def close(self) -> None:
        """Break them all off, because this process stops."""
        self._stopping.set()

    def answer(self, user_id: int, opened: Opened) -> StreamAnswer:
        """What a handler returns. A Refusal raised by `opened` is answered like any other."""

        async def serve(receive: Receive, send: Send) -> None:
            with self._one_of(user_id):
                await self._relay(opened, receive, send)

        return StreamAnswer(serve)

    @contextlib.contextmanager
    def _one_of(self, user_id: int) -> Iterator[None]:
        """Raises Refusal when there are too many."""
        if self._of_user[user_id] >= RELAYS_OF_A_USER_MAX:
            raise Refusal(
                "too_many",
                f"you read {RELAYS_OF_A_USER_MAX} outputs at once here; end one of them first",
                streams=self._of_user[user_id],
                streams_max=RELAYS_OF_A_USER_MAX,
            )
        if self._of_user.total() >= RELAYS_MAX:
            raise Refusal("unavailable", f"{RELAYS_MAX} outputs are read at once here; try again")
        self._of_user[user_id] += 1
        try:
            yield
        finally:
            self._of_user[user_id] -= 1
            if not self._of_user[user_id]:
                del self._of_user[user_id]

    async def _relay(self, opened: Opened, receive: Receive, send: Send) -> None:
        """Returns with the body unfinished where it was broken off: the server then cuts it."""
        relaying = asyncio.create_task(_send_all(opened, send))
        others = (
            asyncio.create_task(gone(receive)),
            asyncio.create_task(self._stopping.wait()),
        )
        try:
            await asyncio.wait([relaying, *others], return_when=asyncio.FIRST_COMPLETED)
            if relaying.done():
                relaying.result()
        except (BrokenOffError, TimeoutError) as error:
            logger().info("output_broken_off", detail=str(error))
        finally:
            await cancelled(relaying, *others)


async def _send_all(opened: Opened, send: Send) -> None:
    async with opened() as relayed:
        headers = [(name.lower().encode(), text.encode()) for name, text in relayed.headers.items()]
        await _sent(send, {"type": "http.response.start", "status": 200, "headers": headers})
        async with contextlib.aclosing(relayed.parts) as parts:
            async for part in parts:
                await _sent(send, {"type": "http.response.body", "body": part, "more_body": True})
        await _sent(send, {"type": "http.response.body", "body": b"", "more_body": False})


async def _sent(send: Send, message: Message) -> None:
    """Returns when the client has taken nearly all that was sent before. Raises TimeoutError."""
    async with asyncio.timeout(TAKE_S):
        await send(message)
