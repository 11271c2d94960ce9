"""Ends daemons whose supervisor was killed with -9, should they not end by themselves."""

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

KILLED_S = 2.0
POLL_S = 0.05


def end_leftovers(mark: str, patience_s: float) -> list[int]:
    """End every process whose command line has these words; answers those that did not end.

    They get SIGTERM, and SIGKILL after the patience. The words are an option and its value, as
    only a supervisor gives them to its own daemons.
    """
    left = {pid: handle for pid in marked(mark) if (handle := held(pid, mark)) is not None}
    try:
        for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, KILLED_S)):
            signal_all(left, number)
            until_s = time.monotonic() + wait_s
            while left and time.monotonic() < until_s:
                drop_ended(left)
        return sorted(left)
    finally:
        for handle in left.values():
            os.close(handle)


def marked(mark: str) -> Iterator[int]:
    """The processes whose command line has these words."""
    for folder in Path("/proc").glob("[0-9]*"):
        if has_mark(int(folder.name), mark):
            yield int(folder.name)


def has_mark(pid: int, mark: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    # A zombie's is empty. The zeros around keep a folder from being taken for one that it begins.
    return os.fsencode("\0" + mark.replace(" ", "\0", 1) + "\0") in words


def held(pid: int, mark: str) -> int | None:
    """A handle that stays this process's, whoever gets its number next; None when it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if has_mark(pid, mark):
        return handle
    os.close(handle)
    return None


def signal_all(left: dict[int, int], number: signal.Signals) -> None:
    for handle in left.values():
        try:
            signal.pidfd_send_signal(handle, number)
        except (ProcessLookupError, PermissionError):
            continue


def drop_ended(left: dict[int, int]) -> None:
    ended, _, _ = select.select(list(left.values()), [], [], POLL_S)
    for pid, handle in list(left.items()):
        if handle in ended:
            os.close(left.pop(pid))
