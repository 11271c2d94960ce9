"""Control groups (version 2): one for each task, where the system gave us a part of its tree."""

import contextlib
import errno
import os
import select

from app.keeper.records import TaskKey

LEAF = "keeper"
"""Holds the keeper and whoever started it: a group with controllers for others holds no process."""

PERIOD_US = 100_000

CONTROLLERS = ("cpu", "memory", "pids")

MOVES_MAX = 100

_MIB = 1024 * 1024

_READ = os.O_RDONLY | os.O_CLOEXEC

_GONE = (errno.ENOENT, errno.ENODEV, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP)
"""The group, its file or our right is not there; all other errors must not pass for that."""

Place = tuple[str, list[tuple[str, bytes]]]
"""The folder of a task's group, and what is written into which of its files."""


class Unusable(Exception):
    """There is no part of the tree for us; the message says why."""


class Limits:
    """What a task may use at most; None is no limit."""

    __slots__ = ("cpus", "mem_mib")

    def __init__(self, cpus: int | None = None, mem_mib: int | None = None) -> None:
        self.cpus = cpus
        self.mem_mib = mem_mib


class Usage:
    """What a group has used; None where its controller is not there to tell."""

    __slots__ = ("cpu_used_us", "out_of_memory", "peak_kib")

    def __init__(self, cpu_used_us: int | None, peak_kib: int | None, killed: int) -> None:
        self.cpu_used_us = cpu_used_us
        self.peak_kib = peak_kib
        self.out_of_memory = killed > 0


class Cgroup:
    """The group of one task, by its folder. Asking one that is gone is no error."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.events_fd = -1

    def is_empty(self) -> bool:
        """Exact, whatever its processes did to hide: no living one is in it or below it."""
        if self.events_fd >= 0:
            return b"populated 1" not in os.pread(self.events_fd, 4096, 0)
        return _numbers(f"{self.folder}/cgroup.events").get("populated", 0) == 0

    def pids(self) -> list[int]:
        """The living processes in it and below it. Not one moment."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.folder):
            found += [int(pid) for pid in _content(f"{folder}/cgroup.procs").split()]
        return found

    def kill(self) -> bool:
        """KILL to all at once, also to what is being forked; False when it cannot be told."""
        return _try_write(f"{self.folder}/cgroup.kill", b"1")

    def usage(self) -> Usage:
        peak = _content(f"{self.folder}/memory.peak").strip()
        return Usage(
            _numbers(f"{self.folder}/cpu.stat").get("usage_usec"),
            -(-int(peak) // 1024) if peak.isdigit() else None,
            _numbers(f"{self.folder}/memory.events").get("oom_kill", 0),
        )

    def remove(self) -> bool:
        """With the groups that the task made in it; False when something still lives there."""
        if self.events_fd >= 0:
            os.close(self.events_fd)
            self.events_fd = -1
        for folder, _, _ in os.walk(self.folder, topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True


class Cgroups:
    """The groups of this keeper's tasks; none are made while no part of the tree was taken."""

    def __init__(self) -> None:
        self.controllers: list[str] = []
        self._base = ""
        # Other keepers may share the base, for tasks of the same numbers in another database; no
        # two run folders of a machine are the same inode.
        folder = os.stat(".")
        self._suffix = f"{folder.st_dev:x}-{folder.st_ino:x}"
        self._leftovers: list[Cgroup] = []
        self._epoll = select.epoll()
        self.bell_fd = self._epoll.fileno()
        """Readable when a watched group may have become empty."""

    def take(self, base: str) -> None:
        """Move out of `base` into a leaf, and use its controllers. Raises Unusable."""
        try:
            _move_to_leaf(base)
        except OSError as error:
            raise Unusable(f"{base}: {error.strerror}") from None
        offered = _content(f"{base}/cgroup.controllers").split()
        control = f"{base}/cgroup.subtree_control"
        self.controllers = [
            name
            for name in CONTROLLERS
            if name in offered and _try_write(control, b"+" + name.encode())
        ]
        self._base = base

    def __str__(self) -> str:
        missing = [name for name in CONTROLLERS if name not in self.controllers]
        without = f", without the controllers {' '.join(missing)}" if missing else ""
        return f"cgroup v2: in {self._base}{without}"

    def place(self, key: TaskKey, limits: Limits) -> Place | None:
        """Where a task goes, and the limits that can be set there; None where there is no place."""
        if not self._base:
            return None
        files: list[tuple[str, bytes]] = []
        if "cpu" in self.controllers and limits.cpus:
            files.append(("cpu.max", b"%d %d" % (limits.cpus * PERIOD_US, PERIOD_US)))
        if "memory" in self.controllers:
            # Half a task is no task: when one process has to go, all of them do.
            files.append(("memory.oom.group", b"1"))
            if limits.mem_mib:
                files.append(("memory.max", b"%d" % (limits.mem_mib * _MIB)))
                files.append(("memory.swap.max", b"0"))
        job_id, attempt, index = key
        return f"{self._base}/task-{job_id}.{attempt}.{index}.{self._suffix}", files

    def watch(self, group: Cgroup) -> None:
        """Ring until it is removed; asking whether it is empty silences it."""
        if group.events_fd < 0:
            # Without, the clock still looks at it after the grace.
            with contextlib.suppress(OSError):
                group.events_fd = os.open(f"{group.folder}/cgroup.events", _READ)
                # Such a file is always readable; only the exceptional condition tells a change.
                self._epoll.register(group.events_fd, select.EPOLLPRI)

    def remove(self, group: Cgroup) -> None:
        """Now, or with the next one when the kernel has not let go of its last process yet."""
        self._leftovers = [old for old in (*self._leftovers, group) if not old.remove()]

    def sweep(self, used: set[str]) -> None:
        """Remove the empty groups that a predecessor left behind."""
        for name in os.listdir(self._base) if self._base else ():
            folder = f"{self._base}/{name}"
            is_ours = name.startswith("task-") and name.endswith(f".{self._suffix}")
            if is_ours and folder not in used:
                Cgroup(folder).remove()


def enter(place: Place) -> None:
    """Make the group and move this process into it. Raises OSError, EBUSY when it is in use."""
    folder, files = place
    with contextlib.suppress(FileNotFoundError):
        # Left by a predecessor that died between this and the record of the task.
        os.rmdir(folder)
    os.mkdir(folder, 0o755)
    for name, content in files:
        # Without swap the kernel has no such file, and nothing to forbid.
        if name != "memory.swap.max" or os.path.exists(f"{folder}/{name}"):
            _write(f"{folder}/{name}", content)
    _write(f"{folder}/cgroup.procs", b"0")


def delegated_base(mounts: str, own: str) -> str:
    """The folder given to us, by the texts of /proc/self/mountinfo and /proc/self/cgroup.

    Given means: marked by systemd's `Delegate=yes`, or the root of a namespace of our own. What is
    only writable may be managed by somebody else. Raises Unusable.
    """
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), None)
    mounted = [line.split() for line in mounts.splitlines() if " - cgroup2 " in line]
    if path is None or not mounted:
        raise Unusable("it is not mounted")
    root, mount_point = mounted[0][3:5]
    within = path.removeprefix(root.rstrip("/")).strip("/")
    if ".." in f"{root}/{within}".split("/"):
        raise Unusable(f"{path} is out of sight here")
    base = os.path.join(mount_point, within).rstrip("/")
    if os.path.basename(base) == LEAF:
        base = os.path.dirname(base)
    if not os.path.exists(f"{base}/cgroup.events"):
        raise Unusable("this is the root of all groups, of which nothing was delegated to us")
    if base != mount_point and not _is_marked(base):
        raise Unusable(f"{base} was not delegated to us (Delegate=yes)")
    if not os.path.exists(f"{base}/cgroup.kill"):
        raise Unusable("it needs Linux 5.14")
    if not os.access(base, os.W_OK) or not os.access(f"{base}/cgroup.procs", os.W_OK):
        raise Unusable(f"{base} is not writable")
    return base


def own_base() -> str:
    """The folder given to this process. Raises Unusable."""
    return delegated_base(_content("/proc/self/mountinfo"), _content("/proc/self/cgroup"))


def _move_to_leaf(base: str) -> None:
    leaf = f"{base}/{LEAF}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(leaf, 0o755)
    _write(f"{leaf}/cgroup.procs", b"0")
    # What is delegated to us has nobody else's processes in it: these are our worker's.
    for _ in range(MOVES_MAX):
        pids = _content(f"{base}/cgroup.procs").split()
        if not pids:
            return
        for pid in pids:
            _try_write(f"{leaf}/cgroup.procs", pid.encode())


def _is_marked(folder: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _content(path: str) -> str:
    """Empty when there is no such file, or nothing to be read any more."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return ""


def _numbers(path: str) -> dict[str, int]:
    """A file of lines that are a name and a number."""
    pairs = (line.split() for line in _content(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _try_write(path: str, content: bytes) -> bool:
    try:
        _write(path, content)
    except OSError:
        return False
    return True
