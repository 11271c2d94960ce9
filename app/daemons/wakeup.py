"""Lets a supervisor without an event loop sleep until a signal, a dead child, or the time."""

import os
import select
import signal
from types import FrameType


class Wakeup:
    """Make it in the main thread. `stopping` is set by the first SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.stopping = False
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        # A signal without a handler would not wake the sleeper.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def sleep(self, seconds: float) -> None:
        """Sleep, shorter when a signal comes."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            os.read(self._reader, 4096)

    def ignore(self) -> None:
        """From now on no signal changes anything: the interpreter would restore their defaults."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True
