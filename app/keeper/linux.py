"""The few Linux calls that Python 3.11 does not offer."""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

CLOCK_BOOTTIME = 7
TFD_CLOEXEC = os.O_CLOEXEC
TFD_NONBLOCK = os.O_NONBLOCK
TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)


def become_parent_of_all(name: str) -> None:
    """Name this process, keep others out of its memory, and inherit every orphan below it."""
    _checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    _checked(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
    _checked(_libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0))


def hear_of_parents_death(number: int) -> None:
    """Have the kernel send us this signal then; not if it has died already."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0))


class BootTimer:
    """A descriptor that becomes readable at a moment of CLOCK_BOOTTIME.

    A selector's own time-out stands still while the machine is suspended, and would notice
    an overdue fence only that much later.
    """

    def __init__(self) -> None:
        self.fd: int = _checked(_libc.timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK))

    def arm(self, at_ns: int) -> None:
        """Fire once at `at_ns`, at once when that has passed."""
        seconds, nanoseconds = divmod(max(at_ns, 1), 1_000_000_000)
        setting = (ctypes.c_long * 4)(0, 0, seconds, nanoseconds)
        _checked(_libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, setting, None))

    def drain(self) -> None:
        """Take the expiry, so that the descriptor is quiet until armed again."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
