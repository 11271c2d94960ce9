"""What /proc says about processes: who lives, whose child, in which group."""

import contextlib
import os
import signal
from collections.abc import Sequence

Identity = tuple[int, int]
"""Pid and start time in clock ticks since boot: together never used twice in one boot."""


class Seen:
    """One line of the process table."""

    __slots__ = ("group", "is_dead", "parent", "pid", "start_ticks")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The program's name may hold spaces and parentheses; the last one ends it.
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.start_ticks = int(fields[19])
        # A main thread that ended before its siblings looks like a zombie, and is none.
        self.is_dead = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1

    @property
    def identity(self) -> Identity:
        return (self.pid, self.start_ticks)


def look(pid: int) -> Seen | None:
    """The process as it is now, a zombie included; None when there is none."""
    stat = _read(f"/proc/{pid}/stat", 1024)
    return Seen(pid, stat) if stat else None


def lives(who: Identity) -> bool:
    seen = look(who[0])
    return seen is not None and seen.identity == who and not seen.is_dead


def everything() -> dict[int, Seen]:
    """All processes. Not one moment: some may have come and gone while it was read."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            seen = look(int(name))
            if seen is not None:
                table[seen.pid] = seen
    return table


def own_tree() -> dict[int, Seen]:
    """All that descend from this process; as it inherits every orphan, that is all it ever made.

    Costs by the size of the tree, not of the machine. An orphan that comes to us while we read is
    looked for again; what forks meanwhile, or hides behind a sibling that ends just then, is found
    by the next reading.
    """
    table: dict[int, Seen] = {}
    read: set[int] = set()
    while fresh := set(own_children()) - read:
        while fresh:
            pid = fresh.pop()
            read.add(pid)
            seen, children = look(pid), _children(pid)
            if children is None:
                return below(everything(), os.getpid())
            if seen is not None:
                table[pid] = seen
            fresh |= set(children) - read
    return table


def below(table: dict[int, Seen], root: int) -> dict[int, Seen]:
    """The part of a table that descends from `root`, without it."""
    children: dict[int, list[int]] = {}
    for seen in table.values():
        children.setdefault(seen.parent, []).append(seen.pid)
    found: dict[int, Seen] = {}
    fresh = children.get(root, [])
    while fresh:
        found |= {pid: table[pid] for pid in fresh}
        fresh = [child for pid in fresh for child in children.get(pid, [])]
    return found


def own_children() -> list[int]:
    """This process's children, zombies included, the last to come at the end.

    The kernel's list is exact here although it promises little: only we can take one off it,
    by waiting for it, and we do not while we read.
    """
    children = _read(f"/proc/self/task/{os.getpid()}/children", 1 << 20)
    if children is not None:
        return [int(pid) for pid in children.split()]
    own_pid = os.getpid()
    return [seen.pid for seen in everything().values() if seen.parent == own_pid]


def _children(pid: int) -> list[int] | None:
    """The children of all threads of a process; None where the kernel keeps no such list."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return found
    for thread in threads:
        listed = _read(f"/proc/{pid}/task/{thread}/children", 1 << 20)
        if listed is not None:
            found += [int(child) for child in listed.split()]
        elif os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
            return None
    return found


def kill_children(pids: Sequence[int]) -> None:
    """KILL to children of this process, the last to come first: one may fork faster than it dies.

    A child keeps its number until we wait for it. One that changed its user may be beyond us;
    then it stays a child, which is the truth.
    """
    for pid in reversed(pids):
        with contextlib.suppress(PermissionError):
            os.kill(pid, signal.SIGKILL)


def open_pidfd(who: Identity) -> int:
    """A descriptor of exactly this process, readable once it has ended; -1 when it has."""
    try:
        pidfd = os.pidfd_open(who[0]) if who[0] > 0 else -1
    except ProcessLookupError:
        return -1
    if pidfd < 0:
        return -1
    seen = look(who[0])
    if seen is not None and seen.identity == who:
        return pidfd
    os.close(pidfd)
    return -1


def send(who: Identity, signals: tuple[int, ...]) -> None:
    """Signal exactly this process, whoever may have its number by now. Raises OSError."""
    pidfd = open_pidfd(who)
    if pidfd < 0:
        return
    try:
        for number in signals:
            signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        # A program that changed its user may be beyond us. It stays in the tree, and the
        # task stays listed, which is the truth.
        return
    finally:
        os.close(pidfd)


def _read(path: str, size: int) -> bytes | None:
    # Anything but these must not pass: out of descriptors, "cannot look" would read as "is gone".
    gone = (FileNotFoundError, ProcessLookupError, PermissionError)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except gone:
        return None
    try:
        content = os.read(fd, size)
        while content and len(content) < size and (more := os.read(fd, size - len(content))):
            content += more
        return content
    except gone:
        return None
    finally:
        os.close(fd)
