"""One task as its keeper knows it: who it is, how far it is, and what is known of its end."""

import os
import resource
import signal
import time

from app.keeper.cgroups import Cgroup, Usage
from app.keeper.proctable import Identity
from app.keeper.records import Json, Record

STARTING = "starting"
RUNNING = "running"
DRAINING = "draining"
EXITED = "exited"


class Failure:
    """Why a task's program never ran."""

    __slots__ = ("detail", "errno", "stage")

    def __init__(self, stage: str, errno: int, detail: str) -> None:
        self.stage = stage
        self.errno = errno
        self.detail = detail

    def view(self) -> Json:
        return {"stage": self.stage, "errno": self.errno, "detail": self.detail}


class Ending:
    """How the main process ended, and what the tree has used.

    Where no cgroup tells more, CPU is that of every process the keeper waited for (the main
    process and orphans), each with the descendants it waited for itself. Not counted: what runs
    on, and children that a process left to the kernel by ignoring SIGCHLD. Memory is the largest
    resident set of any single one of these; it is never below the keeper's own, from which each
    is forked.
    """

    __slots__ = (
        "by_fence",
        "code",
        "cpu_used_us",
        "failure",
        "group",
        "peak_kib",
        "reaped",
        "stopped",
    )

    def __init__(self) -> None:
        self.code: int | None = None
        self.reaped = False
        self.stopped = False
        self.by_fence = False
        self.failure: Failure | None = None
        self.group = Usage(None, None, 0)  # What the task's cgroup says, which is all of it.
        self.cpu_used_us = 0
        self.peak_kib = 0

    def add_usage(self, usage: resource.struct_rusage) -> None:
        self.cpu_used_us += round((usage.ru_utime + usage.ru_stime) * 1_000_000)
        self.peak_kib = max(self.peak_kib, usage.ru_maxrss)


class Task:
    """A process tree and its record."""

    __slots__ = (
        "cgroup",
        "ending",
        "evidence",
        "is_child",
        "kill_at_ns",
        "members",
        "pause_ns",
        "pidfd",
        "record",
        "state",
        "status",
        "status_fd",
        "told",
        "wake_at_ns",
    )

    def __init__(self, record: Record) -> None:
        self.record = record
        self.state = STARTING
        self.cgroup = Cgroup(record.cgroup) if record.cgroup else None
        self.ending = Ending()
        self.evidence: Json | None = None
        self.is_child = True  # Not so for one taken over from a predecessor.
        self.members: set[Identity] = set()  # All of the tree but the main process.
        self.told: set[Identity] = set()  # Those that got their TERM.
        self.kill_at_ns: int | None = None  # On CLOCK_MONOTONIC; set once the tree has to go.
        self.wake_at_ns: int | None = None  # When the clock has to look at it next.
        self.pause_ns = 0  # Between the last two rounds of KILL.
        self.pidfd = -1
        self.status_fd = -1
        self.status = b""

    @property
    def main(self) -> Identity:
        return (self.record.pid, self.record.start_ticks)

    @property
    def is_open(self) -> bool:
        return self.state != EXITED

    @property
    def main_lives(self) -> bool:
        """The main process has not been seen dead; its pid and group are still its own."""
        return self.state in (STARTING, RUNNING)

    def leads(self, session: int) -> bool:
        """The session was made by the main process, whose pid is still its own."""
        return self.is_child and self.main_lives and session == self.record.pid

    def forget_process(self, identity: Identity) -> None:
        self.members.discard(identity)
        self.told.discard(identity)

    def close(self) -> None:
        """Settle the evidence: the tree is empty."""
        self.state = EXITED
        if self.cgroup is not None and self.ending.failure is None:
            self.ending.group = self.cgroup.usage()
        self.members.clear()
        self.told.clear()
        self.evidence = self._evidence()

    def view(self) -> Json:
        record = self.record
        return {
            **self.name(),
            "task_id": record.task_id,
            "state": self.state,
            "argv0": record.argv0,
            "fence": record.fence,
            "grace_s": record.grace_s,
            "pid": record.pid,
            "start_ticks": record.start_ticks,
            "boot_id": record.boot_id,
            "made_at_unix_ms": record.made_at_unix_ms,
            "exec_at_monotonic_ns": record.exec_at_monotonic_ns,
            "stopping": self.is_open and self.kill_at_ns is not None,
            "adopted": not self.is_child,
            "exit": self.evidence,
        }

    def name(self) -> Json:
        job_id, attempt, index = self.record.key
        return {"job_id": job_id, "attempt": attempt, "index": index}

    def _evidence(self) -> Json:
        record, ending = self.record, self.ending
        code, group = ending.code, ending.group
        cpu_used_us, peak_kib = group.cpu_used_us, group.peak_kib
        # Of a process that somebody else waited for nothing is known, not even zero.
        if ending.reaped:
            cpu_used_us = ending.cpu_used_us if cpu_used_us is None else cpu_used_us
            peak_kib = ending.peak_kib if peak_kib is None else peak_kib
        return {
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "reaped": ending.reaped,
            "lost": not ending.reaped and ending.failure is None,
            "execed": record.exec_at_monotonic_ns is not None and ending.failure is None,
            "failure": None if ending.failure is None else ending.failure.view(),
            "stopped": ending.stopped,
            "killed_by_fence": ending.by_fence,
            "out_of_memory": group.out_of_memory,
            "cpu_used_us": cpu_used_us,
            "mem_peak_mib": None if peak_kib is None else -(-peak_kib // 1024),
            "started_at_unix_ms": record.made_at_unix_ms,
            "started_at_monotonic_ns": record.made_at_monotonic_ns,
            "ended_at_unix_ms": unix_ms(),
            "ended_at_monotonic_ns": time.monotonic_ns(),
        }


def failure_of(told: str | None, status: int) -> Failure:
    """What the child said before it ended, else how it ended."""
    if told is not None:
        stage, number, detail = told.split(" ", 2)
        return Failure(stage, int(number), detail)
    code = os.waitstatus_to_exitcode(status)
    cause = signal_name(-code) if code < 0 else f"exit {code}"
    return Failure("start", 0, f"ended before exec by {cause}")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def unix_ms() -> int:
    """The wall clock, for display only."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000
