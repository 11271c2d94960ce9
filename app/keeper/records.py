"""The files that outlive a keeper: a record a task, made before exec; an exit file at its end."""

import json
import os
from collections.abc import Iterator
from typing import Any

from app.keeper.proctable import Identity, Seen

RECORDS = "records"

TaskKey = tuple[int, int, int]
"""Job, attempt, index."""

Json = dict[str, object]


def read_boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def record_path(key: TaskKey) -> str:
    return f"{RECORDS}/{key[0]}.{key[1]}.{key[2]}.json"


def exit_path(key: TaskKey) -> str:
    return f"{RECORDS}/{key[0]}.{key[1]}.{key[2]}.exit.json"


class Report:
    """What a shim tells of its task: at the end of the main process, and when the tree is empty."""

    __slots__ = ("by_fence", "cpu_used_us", "ended_at", "is_empty", "peak_kib", "status")

    def __init__(self, told: dict[str, Any]) -> None:
        self.status: int | None = told["status"]  # As wait4 gives it; None while it lives.
        self.is_empty: bool = told["is_empty"]
        self.by_fence: bool = told["by_fence"]
        self.cpu_used_us: int = told["cpu_used_us"]
        self.peak_kib: int = told["peak_kib"]
        # On the wall clock in milliseconds, and on the monotonic one in nanoseconds.
        self.ended_at: tuple[int, int] = (told["ended_at_unix_ms"], told["ended_at_monotonic_ns"])


class Record:
    """What a task's record says; neither its environment nor its arguments."""

    __slots__ = (
        "argv0",
        "boot_id",
        "cgroup",
        "exec_at_monotonic_ns",
        "fence",
        "grace_s",
        "key",
        "made_at_monotonic_ns",
        "made_at_unix_ms",
        "pid",
        "report",
        "shim",
        "start_ticks",
        "task_id",
    )

    def __init__(self, key: TaskKey) -> None:
        self.key = key
        self.task_id: object = None
        self.argv0 = ""
        self.fence = "stop"
        self.grace_s = 0.0
        self.cgroup = ""
        self.boot_id = ""
        self.made_at_unix_ms = 0
        self.made_at_monotonic_ns = 0
        self.pid = 0
        self.start_ticks = 0
        self.shim: Identity = (0, 0)
        self.exec_at_monotonic_ns: int | None = None
        self.report: Report | None = None  # What the shim told last.

    def head(self) -> bytes:
        """The first line. The next two are lines of /proc: who the child is, and who its shim."""
        job_id, attempt, index = self.key
        known = {"job_id": job_id, "attempt": attempt, "index": index, "task_id": self.task_id}
        known |= {"argv0": self.argv0, "fence": self.fence, "grace_s": self.grace_s}
        known |= {"cgroup": self.cgroup, "boot_id": self.boot_id}
        known |= {"made_at_unix_ms": self.made_at_unix_ms}
        known |= {"made_at_monotonic_ns": self.made_at_monotonic_ns}
        return encode(known)


def encode(line: Json) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def exec_line(exec_at_monotonic_ns: int) -> bytes:
    """The fourth line, written right before exec: a record without it never ran its program."""
    return encode({"exec_at_monotonic_ns": exec_at_monotonic_ns})


def append(record: "Record", line: bytes) -> None:
    """Add what a shim tells of its own child. Raises OSError."""
    fd = os.open(record_path(record.key), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        # Forgotten and made again meanwhile, it is another's.
        if os.read(fd, 1 << 16).split(b"\n", 2)[1].startswith(b"%d (" % record.pid):
            os.write(fd, line)
    finally:
        os.close(fd)


def read_record(key: TaskKey) -> Record:
    """The record on disk; one without an identity when its maker died while writing it."""
    record = Record(key)
    try:
        with open(record_path(key), "rb") as file:
            lines = file.read().splitlines()
        fields = json.loads(lines[0])
        for name in ("task_id", "argv0", "fence", "grace_s", "boot_id", "cgroup"):
            setattr(record, name, fields[name])
        for name in ("made_at_unix_ms", "made_at_monotonic_ns"):
            setattr(record, name, int(fields[name]))
        (record.pid, record.start_ticks), record.shim = map(_identity, lines[1:3])
        for line in lines[3:]:
            told = json.loads(line)
            if "exec_at_monotonic_ns" in told:
                record.exec_at_monotonic_ns = int(told["exec_at_monotonic_ns"])
            else:
                record.report = Report(told)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return record
    return record


def _identity(stat: bytes) -> Identity:
    return Seen(int(stat.split(b" ", 1)[0]), stat).identity


def read_exit(key: TaskKey) -> Json | None:
    """The evidence on disk; None when there is none or a crash of the machine tore it."""
    try:
        with open(exit_path(key), encoding="utf-8") as file:
            evidence = json.load(file)
    except (OSError, ValueError):
        return None
    return evidence if isinstance(evidence, dict) else None


def write_exit(key: TaskKey, evidence: Json) -> None:
    """Appear whole or not at all."""
    fresh = exit_path(key) + ".new"
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(evidence, file)
    os.replace(fresh, exit_path(key))


def remove(key: TaskKey) -> None:
    """Drop the record, then the exit file: the other order could leave a task that looks lost."""
    for path in (record_path(key), exit_path(key)):
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue


def recorded_keys() -> list[TaskKey]:
    """All tasks with a record; what a crash left half done is swept away."""
    names = set(os.listdir(RECORDS))
    for name in sorted(names):
        stem, is_exit = name.removesuffix(".json"), name.endswith(".exit.json")
        has_record = stem.removesuffix(".exit") + ".json" in names
        if name.endswith(".new") or (is_exit and not has_record):
            os.unlink(f"{RECORDS}/{name}")
    return [key for name in sorted(names) if (key := _key(name)) is not None]


def read_all() -> Iterator[Record]:
    """All records, as far as they can be read."""
    return (read_record(key) for name in os.listdir(RECORDS) if (key := _key(name)) is not None)


def _key(name: str) -> TaskKey | None:
    parts = name.removesuffix(".json").split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])
