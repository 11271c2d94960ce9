"""The tasks of this host: started, watched, ended with their whole tree, and taken over."""

import contextlib
import errno
import functools
import json
import os
import signal
import time
from collections.abc import Callable

from app.keeper import proctable, records, shim
from app.keeper.cgroups import Cgroups
from app.keeper.fence import Fence
from app.keeper.loop import Loop
from app.keeper.proctable import Identity
from app.keeper.records import Record, Report, TaskKey
from app.keeper.spawn import Launched, Launcher, Spec
from app.keeper.task import DRAINING, EXITED, RUNNING, STARTING, Task, failure_of, unix_ms
from app.keeper.wire import Refused

KILL_PAUSE_NS = 1_000_000_000
"""How often a shim is told again; once is enough for one that nobody has stopped."""

BURIALS_MAX = 200
"""In one go: processes that end faster than they are buried must not stop all else."""


class Processes:
    """Every task that lives or is not forgotten. Tells `tell(event, task)` what happened.

    Events: `started`, `failed` (the program never ran), `exists` (another record was first),
    `exited` (the tree is empty and the evidence is on disk).
    """

    def __init__(self, loop: Loop, fence: Fence, launcher: Launcher, groups: Cgroups) -> None:
        self.tasks: dict[TaskKey, Task] = {}
        self.tell: Callable[[str, Task], None] = _tell_nobody
        self._loop = loop
        self._fence = fence
        self.launcher = launcher
        self._groups = groups
        self._boot_id = fence.boot_id
        # Tasks by the pids of those shims that are our children; in here until waited for.
        self._shims: dict[int, Task] = {}
        self._has_dead = False
        loop.watch(groups.bell_fd, self._close_the_empty)

    def spawn(self, spec: Spec) -> None:
        """Fork; how it went is told as an event."""
        if spec.key in self.tasks:
            raise Refused("exists", "this task has a record already")
        if not self._fence.is_open():
            raise Refused("failed", "the fence is closed", stage="fence", errno=errno.ETIME)
        record = self._new_record(spec)
        spec.cgroup = self._groups.place(spec.key, spec.limits)
        record.cgroup = spec.cgroup[0] if spec.cgroup else ""
        order = spec.order(record.head(), self._fence.deadline_ns)
        try:
            launched = self.launcher.launch(order)
        except OSError as error:
            detail = error.strerror or "cannot fork"
            raise Refused("failed", detail, stage="fork", errno=error.errno) from None
        self._watch(Task(record), launched)

    def stop(self, task: Task, grace_s: float, *, by_fence: bool = False) -> None:
        """TERM to the whole tree now, KILL after the grace; again with less grace is sooner."""
        if not task.is_open:
            return
        if task.main_lives:
            task.ending.stopped |= not by_fence
            task.ending.by_fence |= by_fence
        at_ns = time.monotonic_ns() + round(grace_s * 1e9)
        task.kill_at_ns = at_ns if task.kill_at_ns is None else min(task.kill_at_ns, at_ns)
        task.wake_at_ns = task.kill_at_ns
        self._order(task, shim.TERMINATE)

    def stop_fenced(self) -> None:
        """The fence has expired: stop what must not run without the database's word."""
        for task in self._open_tasks():
            if task.record.fence == "stop":
                self.stop(task, task.record.grace_s, by_fence=True)

    def forget(self, key: TaskKey) -> None:
        task = self.tasks.get(key)
        if task is None:
            return
        if task.is_open:
            raise Refused("not_exited", "the task still has a process")
        records.remove(key)
        del self.tasks[key]

    def leave(self) -> None:
        """Leave the tasks alone, but nothing else behind."""
        self.launcher.dismiss()

    def take_over(self) -> None:
        """Go on with what a predecessor left."""
        for key in records.recorded_keys():
            self._adopt(key)
        self._groups.sweep({task.record.cgroup for task in self._open_tasks()})

    def reap(self) -> None:
        """Bury the children that have died, and end what a killed shim has left to us."""
        self._has_dead = True
        for _ in range(BURIALS_MAX):
            pid = _dead_child()
            if pid is None:
                self._has_dead = False
                break
            self._bury(pid)
        if any(task.is_broken for task in self._open_tasks()):
            proctable.kill_children(self._strays())
            self._close_the_empty()

    def due_in_s(self) -> float | None:
        """How long nothing has to be done by the clock; None when nothing ever has."""
        if self._has_dead:
            return 0
        moments = [task.wake_at_ns for task in self._open_tasks() if task.wake_at_ns is not None]
        return max(0, min(moments) - time.monotonic_ns()) / 1e9 if moments else None

    def step(self) -> None:
        """Do what the clock asks for."""
        if self._has_dead:
            self.reap()
        now_ns = time.monotonic_ns()
        for task in self._open_tasks():
            if task.wake_at_ns is not None and task.wake_at_ns <= now_ns:
                self._kill(task, now_ns)

    def _new_record(self, spec: Spec) -> Record:
        record = Record(spec.key)
        record.task_id = spec.task_id
        record.argv0 = spec.argv[0].decode()
        record.fence = spec.fence
        record.grace_s = spec.grace_s
        record.boot_id = self._boot_id
        record.made_at_unix_ms = unix_ms()
        record.made_at_monotonic_ns = time.monotonic_ns()
        return record

    def _watch(self, task: Task, launched: Launched) -> None:
        task.record.shim = launched.pid, launched.start_ticks
        task.key_fd = launched.key_fd
        task.status_fd, task.report_fd = launched.status_fd, launched.report_fd
        self.tasks[task.record.key] = self._shims[launched.pid] = task
        self._loop.watch(task.status_fd, functools.partial(self._read_status, task))
        self._loop.watch(task.report_fd, functools.partial(self._read_report, task))

    def _read_status(self, task: Task) -> None:
        try:
            told = os.read(task.status_fd, 4096)
        except BlockingIOError:
            return
        task.status += told
        if not told:
            self._settle_start(task)

    def _settle_start(self, task: Task) -> None:
        """The pipe has ended: by exec, or because the child is gone, which its shim will tell."""
        self._loop.unwatch(task.status_fd)
        os.close(task.status_fd)
        task.status_fd = -1
        told = _told(task)
        if "main" in told:
            task.record.pid, task.record.start_ticks = map(int, told["main"].split())
        if "exec" in told and "failed" not in told:
            task.record.exec_at_monotonic_ns = int(told["exec"])
            if task.state == STARTING:
                task.state = RUNNING
            self.tell("started", task)
        elif task.state == DRAINING:
            self._close_if_empty(task)
        self._name(task)

    def _name(self, task: Task) -> None:
        """Tell the shim whose it is: only now, as it would take time from the child's start."""
        with contextlib.suppress(BrokenPipeError):
            os.write(task.key_fd, b"%d %d %d" % task.record.key)
        os.close(task.key_fd)
        task.key_fd = -1
        self._order(task, shim.LEARN)

    def _read_report(self, task: Task) -> None:
        try:
            told = os.read(task.report_fd, 4096)
        except BlockingIOError:
            return
        *lines, task.reported = (task.reported + told).split(b"\n")
        for line in lines:
            task.record.report = Report(json.loads(line))
        if not told:
            self._loop.unwatch(task.report_fd)
            os.close(task.report_fd)
            task.report_fd = -1
        elif lines:
            self._heed_report(task)

    def _heed_report(self, task: Task) -> None:
        """The main process has ended. That its child is gone ended the status pipe before."""
        while task.status_fd >= 0:
            self._read_status(task)
        self._drain(task)
        self._close_if_empty(task)

    def _drain(self, task: Task) -> None:
        """The main process is gone; the rest of the tree is its shim's to end."""
        task.state = DRAINING
        if task.cgroup is not None:
            self._groups.watch(task.cgroup)

    def _bury(self, pid: int) -> None:
        if pid == self.launcher.spare_pid:
            self.launcher.dismiss()
            return
        os.waitpid(pid, 0)
        task = self._shims.pop(pid, None)
        if task is None:
            return
        while task.report_fd >= 0:
            self._read_report(task)
        if task.is_open and not task.is_empty:
            self._break(task)

    def _break(self, task: Task) -> None:
        """Its shim was killed. What it was the parent of is ours to end now, as far as we see."""
        self._drain(task)
        task.is_broken = True
        self._kill(task, time.monotonic_ns())

    def _close_the_empty(self) -> None:
        for task in self._open_tasks():
            if task.state == DRAINING:
                self._close_if_empty(task)

    def _close_if_empty(self, task: Task) -> None:
        if task.status_fd >= 0 or not (self._is_in_bits(task) or task.is_empty):
            return
        if task.record.exec_at_monotonic_ns is None and task.is_child:
            self._fail(task)
        elif task.cgroup is None or task.cgroup.is_empty():
            self._close(task)

    def _fail(self, task: Task) -> None:
        failure = failure_of(_told(task).get("failed"), task.record.report)
        if failure.stage == "record" and failure.errno == errno.EEXIST:
            self._give_way(task)
            return
        task.ending.failure = failure
        self.tell("failed", task)
        self._close(task)

    def _give_way(self, task: Task) -> None:
        """Another child, of a predecessor, made this task's record first: that one is the task."""
        self.tell("exists", self._adopt(task.record.key))

    def _close(self, task: Task) -> None:
        task.close()
        try:
            records.write_exit(task.record.key, task.evidence or {})
        except OSError as error:
            # A full disk must not keep the slot: the evidence lives as long as the keeper.
            task.evidence = {**(task.evidence or {}), "unsaved": error.strerror}
        if task.cgroup is not None:
            self._groups.remove(task.cgroup)
        self.tell("exited", task)

    def _order(self, task: Task, number: int) -> None:
        """CONT makes one heed it that was stopped, by a task of our own user perhaps."""
        if self._shims.get(task.record.shim[0]) is task:
            # A child keeps its number until we wait for it.
            for each in (number, signal.SIGCONT):
                os.kill(task.record.shim[0], each)
        else:
            proctable.send(task.record.shim, (number, signal.SIGCONT))

    def _kill(self, task: Task, now_ns: int) -> None:
        """The grace is over."""
        # Nothing gets away from this, but one that was moved elsewhere, or is not in it yet.
        if task.cgroup is not None:
            task.cgroup.kill()
        self._order(task, shim.KILL)
        if task.is_broken:
            proctable.send(task.main, (signal.SIGKILL,))
            self._close_if_empty(task)
        task.wake_at_ns = now_ns + KILL_PAUSE_NS

    def _is_in_bits(self, task: Task) -> bool:
        """Nothing is left of a task without its shim, as far as can be seen."""
        if not task.is_broken or proctable.lives(task.main):
            return False
        return not task.is_child or not self._strays()

    def _strays(self) -> list[int]:
        """Children that are no shims: only a shim that was killed leaves such to us."""
        known = {*self._shims, self.launcher.spare_pid}
        return [pid for pid in proctable.own_children() if pid not in known]

    def _adopt(self, key: TaskKey) -> Task:
        """A task by its record alone: exited, running, or (its main process gone) draining."""
        task = Task(records.read_record(key))
        task.is_child = False
        self.tasks[key] = task
        task.evidence = records.read_exit(key)
        if task.evidence is not None:
            task.state = EXITED
        elif task.record.boot_id != self._boot_id or task.is_empty:
            # Of another boot nothing can live: pid and start time may be those of a stranger here.
            self._close(task)
        else:
            task.state = RUNNING
            self._watch_pid(task, task.main, self._adopted_main_ended)
            self._watch_pid(task, task.record.shim, self._adopted_shim_ended)
        return task

    def _watch_pid(self, task: Task, who: Identity, ended: Callable[[Task], None]) -> None:
        """Call when the process has ended, at once when it has."""
        pidfd = proctable.open_pidfd(who)
        if pidfd < 0:
            ended(task)
            return

        def ring() -> None:
            self._loop.unwatch(pidfd)
            os.close(pidfd)
            ended(task)

        self._loop.watch(pidfd, ring)

    def _adopted_main_ended(self, task: Task) -> None:
        if task.is_open:
            self._drain(task)
            self._close_if_empty(task)

    def _adopted_shim_ended(self, task: Task) -> None:
        if not task.is_open:
            return
        self._drain(task)
        task.record = records.read_record(task.record.key)
        if task.is_empty:
            self._close_if_empty(task)
        else:
            self._break(task)

    def _open_tasks(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.is_open]


def _tell_nobody(event: str, task: Task) -> None:
    """Until a server listens, `list` alone has the news."""


def _dead_child() -> int | None:
    """One that waits to be buried, and stays so."""
    try:
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if dead is None else dead.si_pid


def _told(task: Task) -> dict[str, str]:
    """The lines of the status pipe: a word, and what it says."""
    lines = task.status.decode("utf-8", "replace").split("\n")
    return {word: rest for word, _, rest in (line.partition(" ") for line in lines)}
