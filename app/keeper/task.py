"""One task as its keeper knows it: who it is, how far it is, and what is known of its end."""

import os
import signal
import time

from app.keeper.cgroups import Cgroup, Usage
from app.keeper.proctable import Identity
from app.keeper.records import Json, Record, Report

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
    """What the keeper itself knows of a task's end; the rest is in its shim's report.

    Where no cgroup tells more, CPU is that of every process the shim waited for (the main process
    and orphans), each with the descendants it waited for itself. Not counted: children that a
    process left to the kernel by ignoring SIGCHLD. Memory is the largest resident set of any
    single one of these; it is never below the shim's own, from which each is forked.
    """

    __slots__ = ("by_fence", "failure", "group", "stopped")

    def __init__(self) -> None:
        self.stopped = False
        self.by_fence = False
        self.failure: Failure | None = None
        self.group = Usage(None, None, 0)  # What the task's cgroup says, which is all of it.


class Task:
    """A process tree and its record."""

    __slots__ = (
        "cgroup",
        "ending",
        "evidence",
        "is_broken",
        "is_child",
        "key_fd",
        "kill_at_ns",
        "record",
        "report_fd",
        "reported",
        "state",
        "status",
        "status_fd",
        "wake_at_ns",
    )

    def __init__(self, record: Record) -> None:
        self.record = record
        self.state = STARTING
        self.cgroup = Cgroup(record.cgroup) if record.cgroup else None
        self.ending = Ending()
        self.evidence: Json | None = None
        self.is_child = True  # Not so for one taken over from a predecessor.
        self.is_broken = False  # Its shim has ended before its tree.
        self.kill_at_ns: int | None = None  # On CLOCK_MONOTONIC; set once the tree has to go.
        self.wake_at_ns: int | None = None  # When the clock has to look at it next.
        self.key_fd = -1
        self.report_fd = -1
        self.reported = b""
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
        """The main process has not been seen dead."""
        return self.state in (STARTING, RUNNING)

    @property
    def is_stopping(self) -> bool:
        return self.is_open and (self.kill_at_ns is not None or self.state == DRAINING)

    @property
    def is_empty(self) -> bool:
        """By its shim's word, which is the kernel's."""
        return self.record.report is not None and self.record.report.is_empty

    def close(self) -> None:
        """Settle the evidence: the tree is empty."""
        self.state = EXITED
        if self.cgroup is not None and self.ending.failure is None:
            self.ending.group = self.cgroup.usage()
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
            "stopping": self.is_stopping,
            "adopted": not self.is_child,
            "exit": self.evidence,
        }

    def name(self) -> Json:
        job_id, attempt, index = self.record.key
        return {"job_id": job_id, "attempt": attempt, "index": index}

    def _evidence(self) -> Json:
        record, ending, report = self.record, self.ending, self.record.report
        execed = record.exec_at_monotonic_ns is not None and ending.failure is None
        # Of a main process that nobody waited for nothing is known, not even zero.
        seen = report if execed and report is not None and report.status is not None else None
        code = None if seen is None else os.waitstatus_to_exitcode(seen.status or 0)
        cpu_used_us, peak_kib = ending.group.cpu_used_us, ending.group.peak_kib
        if seen is not None:
            cpu_used_us = seen.cpu_used_us if cpu_used_us is None else cpu_used_us
            peak_kib = seen.peak_kib if peak_kib is None else peak_kib
        ended_at = (unix_ms(), time.monotonic_ns()) if report is None else report.ended_at
        return {
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "reaped": seen is not None,
            "lost": seen is None and ending.failure is None,
            "execed": execed,
            "failure": None if ending.failure is None else ending.failure.view(),
            "stopped": ending.stopped,
            "killed_by_fence": ending.by_fence or (report is not None and report.by_fence),
            "out_of_memory": ending.group.out_of_memory,
            "cpu_used_us": cpu_used_us,
            "mem_peak_mib": None if peak_kib is None else -(-peak_kib // 1024),
            "started_at_unix_ms": record.made_at_unix_ms,
            "started_at_monotonic_ns": record.made_at_monotonic_ns,
            "ended_at_unix_ms": ended_at[0],
            "ended_at_monotonic_ns": ended_at[1],
        }


def failure_of(told: str | None, report: Report | None) -> Failure:
    """What child or shim said before it ended, else how the child ended."""
    if told is not None:
        stage, number, detail = told.split(" ", 2)
        return Failure(stage, int(number), detail)
    status = None if report is None else report.status
    if status is None:
        return Failure("start", 0, "its parent was killed before exec")
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
