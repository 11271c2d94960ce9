"""A selector loop: one callback a descriptor, one thread, no time of its own."""

import selectors
from collections.abc import Callable


class Loop:
    """Calls back what is readable (or writable where asked for)."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ)
        self._calls[fd] = call

    def want_write(self, fd: int, wanted: bool) -> None:
        """Also call back when `fd` takes more bytes."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
        self._selector.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        self._selector.unregister(fd)
        del self._calls[fd]

    def turn(self, timeout_s: float | None) -> bool:
        """Call back all that are ready, waiting for one or the time-out; False when none was."""
        ready = [(key.fd, self._calls[key.fd]) for key, _ in self._selector.select(timeout_s)]
        for fd, call in ready:
            # An earlier callback of this turn may have closed the descriptor, and a new one
            # may carry its number already.
            if self._calls.get(fd) is call:
                call()
        return bool(ready)
