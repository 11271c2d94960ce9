"""The files that outlive a keeper: a record a task, made before exec; an exit file at its end."""

import json
import os

from app.keeper.proctable import Seen

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
        "mark",
        "pid",
        "start_ticks",
        "task_id",
    )

    def __init__(self, key: TaskKey) -> None:
        self.key = key
        self.task_id: object = None
        self.argv0 = ""
        self.fence = "stop"
        self.grace_s = 0.0
        self.mark = ""
        self.cgroup = ""
        self.boot_id = ""
        self.made_at_unix_ms = 0
        self.made_at_monotonic_ns = 0
        self.pid = 0
        self.start_ticks = 0
        self.exec_at_monotonic_ns: int | None = None

    def head(self) -> bytes:
        """The first line. The second is the child's own line of /proc: who it is."""
        job_id, attempt, index = self.key
        known = {"job_id": job_id, "attempt": attempt, "index": index, "task_id": self.task_id}
        known |= {"argv0": self.argv0, "fence": self.fence, "grace_s": self.grace_s}
        known |= {"mark": self.mark, "cgroup": self.cgroup, "boot_id": self.boot_id}
        known |= {"made_at_unix_ms": self.made_at_unix_ms}
        known |= {"made_at_monotonic_ns": self.made_at_monotonic_ns}
        return json.dumps(known, separators=(",", ":")).encode() + b"\n"


def exec_line(exec_at_monotonic_ns: int) -> bytes:
    """The third line, written right before exec: a record without it never ran its program."""
    return b'{"exec_at_monotonic_ns":%d}\n' % exec_at_monotonic_ns


def read_record(key: TaskKey) -> Record:
    """The record on disk; one without an identity when its maker died while writing it."""
    record = Record(key)
    try:
        with open(record_path(key), "rb") as file:
            lines = file.read().splitlines()
        fields = json.loads(lines[0])
        for name in ("task_id", "argv0", "fence", "grace_s", "mark", "boot_id"):
            setattr(record, name, fields[name])
        # Keepers before this one made none.
        record.cgroup = fields.get("cgroup", "")
        for name in ("made_at_unix_ms", "made_at_monotonic_ns"):
            setattr(record, name, int(fields[name]))
        record.pid = int(lines[1].split(b" ", 1)[0])
        record.start_ticks = Seen(record.pid, lines[1]).start_ticks
        if len(lines) > 2:
            record.exec_at_monotonic_ns = int(json.loads(lines[2])["exec_at_monotonic_ns"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return record
    return record


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
    keys = []
    for name in sorted(names):
        stem, is_exit = name.removesuffix(".json"), name.endswith(".exit.json")
        has_record = stem.removesuffix(".exit") + ".json" in names
        if name.endswith(".new") or (is_exit and not has_record):
            os.unlink(f"{RECORDS}/{name}")
            continue
        parts = stem.split(".")
        if len(parts) == 3 and all(part.isdecimal() for part in parts):
            keys.append((int(parts[0]), int(parts[1]), int(parts[2])))
    return keys
