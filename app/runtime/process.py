"""What a daemon asks of the kernel: no dumps of its secrets, no life after its parent."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4


def forbid_dumps() -> None:
    """Keep other processes of this user from reading this one's memory. Linux only."""
    _prctl(PR_SET_DUMPABLE, 0)


def end_with_parent(parent_pid: int) -> None:
    """Get SIGTERM when the thread that started this process ends, however it ends. Linux only."""
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent_pid:
        # It ended before the kernel was asked.
        os.kill(os.getpid(), signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
