"""Reads output of tasks, one or several at once, and goes on where a connection broke."""

import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from app.cli.session import say

if TYPE_CHECKING:
    from app.client.client import Client

#: In a row and without a byte in between; the API's own refusal comes long before.
BREAKS_MAX = 20
BREAK_PAUSE_S = 0.25
LINE_BYTES_MAX = 64 * 1024


class Wish(NamedTuple):
    """How to read: which stream, how much of the end (None: all), and whether to follow."""

    stream: str
    tail: int | None
    follow: bool


def parts(
    api: "Client", job_id: int, index: int, wish: Wish, attempt: int | None = None
) -> Iterator[bytes]:
    """A task's output from the beginning or the tail on. Raises ApiError.

    Without `follow` it ends where the file ended when we began.
    """
    from app.client.output import BrokenOff

    at = -wish.tail if wish.tail is not None else 0
    end: int | None = None
    breaks = 0
    while end is None or wish.follow or at < end:
        output = api.output(
            job_id, index, stream=wish.stream, follow=wish.follow, offset=at, attempt=attempt
        )
        if end is not None and output.start > at:
            say(f"task {index}: {output.start - at} bytes were dropped as too old")
        at, attempt, began_at = output.start, output.attempt, output.start
        end = output.size if end is None else end
        try:
            while part := output.read():
                at += len(part)
                yield part
            if wish.follow or at == began_at:
                return
        except BrokenOff:
            breaks = breaks + 1 if at == began_at else 0
            if breaks > BREAKS_MAX:
                raise
            time.sleep(BREAK_PAUSE_S)
        finally:
            output.close()


class Printer:
    """Writes bytes to stdout, for several threads: whole lines, each behind its task's index."""

    def __init__(self) -> None:
        self._out = sys.stdout.buffer
        self._lock = threading.Lock()

    def plain(self, part: bytes) -> None:
        """Raises BrokenPipeError, as all methods do, when nobody reads any more."""
        with self._lock:
            self._out.write(part)
            self._out.flush()

    def lines(self, index: int, read: Iterator[bytes]) -> None:
        """Print all; what has no end of line in the end, or for very long, gets one."""
        prefix, rest = b"%d| " % index, b""
        for part in read:
            *whole, rest = (rest + part).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                whole, rest = [*whole, rest], b""
            if whole:
                self.plain(b"".join(b"%b%b\n" % (prefix, line) for line in whole))
        if rest:
            self.plain(b"%b%b\n" % (prefix, rest))
