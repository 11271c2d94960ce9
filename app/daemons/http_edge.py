"""The API's connections: how large a request's head may be, and how long a client may take.

uvicorn bounds neither with httptools; a head would be kept in memory whatever its size, and a
connection that sends nothing, or a byte now and then, for ever.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from app.api.problems import CODES, problem

HEAD_BYTES_MAX = 32 * 1024
"""Request line and headers together; nginx and Apache take as much or less."""

HEAD_S = 10.0
"""From the connection, or from the first byte of a further request, to the end of its head."""

BODY_S = 60.0
"""For a whole body, of 1 MiB at most."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, closed with a typed answer when its client exceeds a bound."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._is_idle = True  # Between requests.
        self._is_in_head = False
        self._is_deaf = False
        self._requests = 0
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self.transport.is_closing():
            return
        requests, is_first = self._requests, self._is_idle
        self._head_bytes += len(data)
        super().data_received(data)
        if self._requests != requests and not (is_first and self._requests == requests + 1):
            # It began somewhere in what has just come; the end of the head will tell.
            self._head_bytes = 0
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse("head_too_large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._is_idle = False
        self._requests += 1
        if self._deadline is None:
            self._expect(HEAD_S)

    def on_headers_complete(self) -> None:
        # The colon, the space and the end of the line are four.
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES_MAX:
            self._refuse("head_too_large")
        elif not self.transport.is_closing():
            self._is_in_head = False
            self._expect(BODY_S)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect(None)
        self._is_idle = True
        self._head_bytes = 0
        if not self._is_deaf:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._is_in_head = True
        self._refuse("not_http")

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The last request; uvicorn does not say that there may be none."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _expect(self, within_s: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if within_s is None else self.loop.call_later(within_s, self._late)

    def _late(self) -> None:
        self._deadline = None
        if self._is_in_head or self._cycle is not None:
            self._refuse("too_slow")
        else:
            # It never said a word.
            self.transport.close()

    def _refuse(self, code: str) -> None:
        """Answer, where no other answer has begun, and hang up."""
        self._expect(None)
        self._is_deaf = True
        cycle = self._cycle
        is_busy = cycle is not None and not cycle.response_complete
        if is_busy and cycle is not None and self._is_in_head:
            # An earlier call is still being answered: that is the last word here.
            cycle.keep_alive = False
            return
        if cycle is None or not is_busy or not cycle.response_started:
            self.transport.write(_answer(code))
        if is_busy and cycle is not None:
            # What was started for it ends as if the client had gone.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def _answer(code: str) -> bytes:
    told = problem(code, DETAILS[code], {})
    status, _ = CODES[code]
    head = [
        STATUS_LINE[status],
        b"content-type: application/problem+json\r\n",
        b"content-length: %d\r\n" % len(told.content),
        b"connection: close\r\n\r\n",
    ]
    return b"".join(head) + told.content


DETAILS = {
    "head_too_large": f"request line and headers may have {HEAD_BYTES_MAX} bytes at most",
    "too_slow": f"a head has to come within {HEAD_S:g} s, a body within {BODY_S:g} s",
    "not_http": "this is no HTTP request",
}
