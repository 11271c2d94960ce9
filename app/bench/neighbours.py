"""How busy other processes kept this machine meanwhile, so that a reader can judge a figure."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: user, nice, system, irq, softirq, steal: a neighbour of the same hardware counts as well.
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)


class Neighbours:
    """Counts from its making on; `own` are the roots of the process trees that do not count."""

    def __init__(self, own: Iterable[int]) -> None:
        self._own = frozenset(own)
        self._started_s = time.monotonic()
        self._busy_before = busy_ticks()
        self._own_before = tree_ticks(self._own)

    def cores(self) -> float:
        """How many cores others used on average."""
        busy = busy_ticks() - self._busy_before
        own = tree_ticks(self._own) - self._own_before
        return max(0, busy - own) / TICKS_PER_S / (time.monotonic() - self._started_s)


def busy_ticks() -> int:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[i]) for i in BUSY_FIELDS)


def tree_ticks(roots: frozenset[int]) -> int:
    """CPU of these processes, of all below them, and of those below that were waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(int(field) for field in fields[11:15])
    return sum(n for pid, n in ticks.items() if descends(pid, roots, parents))


def descends(pid: int, roots: frozenset[int], parents: dict[int, int]) -> bool:
    while pid not in roots:
        if pid not in parents:
            return False
        pid = parents[pid]
    return True
