"""Reads the rest of a body that was refused before it had come, so that the refusal is heard."""

import asyncio
import contextlib
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

BYTES_MAX = 16 * 1024 * 1024
SECONDS_MAX = 2.0


class ClientGone(Exception):
    """The client hung up before it had sent its whole body."""


class Body:
    """What a client sends, and whether it has sent all."""

    def __init__(self, scope: HTTPScope, receive: Receive) -> None:
        self._receive = receive
        self._is_whole = False
        # Whoever asks for something may leave at any time, and a stream hears of it.
        self._may_leave = scope["method"] in ("GET", "HEAD")

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not (self._is_whole or self._may_leave):
            raise ClientGone
        self._is_whole = not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Take the rest, up to a bound."""
        left = BYTES_MAX
        while not self._is_whole and left > 0:
            left -= len((await self.receive()).get("body", b""))


def drained(app: ASGIApp) -> ASGIApp:
    """Answers only when the client has sent all, or too much, or dawdles.

    A connection that is closed while its client still sends is reset, and the answer is lost.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        body = Body(scope, receive)

        async def send_after_draining(message: Message) -> None:
            is_refusal = message["type"] == "http.response.start" and message["status"] >= 400
            if is_refusal and not _waits_for_leave(scope):
                with contextlib.suppress(TimeoutError, ClientGone):
                    async with asyncio.timeout(SECONDS_MAX):
                        await body.drain()
            await send(message)

        await app(scope, body.receive, send_after_draining)

    return call


def _waits_for_leave(scope: Scope) -> bool:
    """The client sends its body only when it is told to; an answer before that is heard."""
    return any(name == b"expect" for name, _ in scope["headers"])
