"""The tasks of this host: started, watched, ended with their whole tree, and taken over."""

import errno
import functools
import os
import signal
import time
from collections.abc import Callable

from app.keeper import proctable, records
from app.keeper.census import Census
from app.keeper.cgroups import Cgroups
from app.keeper.fence import Fence
from app.keeper.loop import Loop
from app.keeper.proctable import Identity, Seen
from app.keeper.records import Record, TaskKey
from app.keeper.spawn import Launcher, Spec
from app.keeper.task import DRAINING, EXITED, RUNNING, Task, failure_of, unix_ms
from app.keeper.wire import Refused

KILL_PAUSE_NS = 20_000_000
KILL_PAUSE_MAX_NS = 1_000_000_000
BURIALS_MAX = 200
"""In one go: a task whose processes end faster than they are buried must not stop all else."""

CHASES_MAX = 100

WATCH_PAUSE_NS = 100_000_000
"""How often the ending tree of a task taken over is read: nobody tells us about its orphans."""


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
        self._census = Census(self.launcher)
        # Mains of ours by pid; each is in here until it was waited for.
        self._mains: dict[int, Task] = {}
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
        spec.env[proctable.MARK_VARIABLE.encode()] = record.mark.encode()
        try:
            child = self.launcher.launch(spec.order(record.head(), self._fence.deadline_ns))
        except OSError as error:
            detail = error.strerror or "cannot fork"
            raise Refused("failed", detail, stage="fork", errno=error.errno) from None
        record.pid, record.start_ticks = child.pid, child.start_ticks
        task = Task(record)
        task.status_fd = child.status_fd
        self.tasks[spec.key] = self._mains[child.pid] = task
        self._loop.watch(child.status_fd, functools.partial(self._read_status, task))

    def stop(self, task: Task, grace_s: float, *, by_fence: bool = False) -> None:
        """TERM to the whole tree now, KILL after the grace; again with less grace is sooner."""
        if not task.is_open:
            return
        if task.main_lives:
            task.ending.stopped |= not by_fence
            task.ending.by_fence |= by_fence
        is_first = task.kill_at_ns is None
        self._set_kill(task, grace_s)
        if is_first:
            self._terminate(task)

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
        """Go on with what a predecessor left: watch what lives, end what lost its main process."""
        found = [self._adopt(key) for key in records.recorded_keys()]
        for task in found:
            self._drain_adopted(task)
        self._groups.sweep({task.record.cgroup for task in self._open_tasks()})

    def reap(self) -> None:
        """Bury the children that have died; each is looked at before its pid is given away."""
        self._census.claim_strays(self._open_tasks())
        self._has_dead = True
        for _ in range(BURIALS_MAX):
            pid = _dead_child()
            if pid is None:
                self._has_dead = False
                break
            self._bury(pid)
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
                self._press_on(task, now_ns)

    def _new_record(self, spec: Spec) -> Record:
        record = Record(spec.key)
        record.task_id = spec.task_id
        record.argv0 = spec.argv[0].decode()
        record.fence = spec.fence
        record.grace_s = spec.grace_s
        record.mark = os.urandom(16).hex()
        record.boot_id = self._boot_id
        record.made_at_unix_ms = unix_ms()
        record.made_at_monotonic_ns = time.monotonic_ns()
        return record

    def _read_status(self, task: Task) -> None:
        try:
            told = os.read(task.status_fd, 4096)
        except BlockingIOError:
            return
        task.status += told
        if not told:
            self._settle_start(task)

    def _settle_start(self, task: Task) -> None:
        """The pipe has ended: by exec, or because the child is gone."""
        self._loop.unwatch(task.status_fd)
        os.close(task.status_fd)
        task.status_fd = -1
        told = dict(_told(line) for line in task.status.split(b"\n") if line)
        if "exec" in told:
            task.record.exec_at_monotonic_ns = int(told["exec"])
        if "exec" in told and "failed" not in told:
            task.state = RUNNING
            self.tell("started", task)
            return
        status = self._wait_for_main(task)
        task.ending.failure = failure = failure_of(told.get("failed"), status)
        if failure.stage == "record" and failure.errno == errno.EEXIST:
            self._give_way(task)
            return
        task.state = DRAINING
        self.tell("failed", task)
        self._close(task)

    def _give_way(self, task: Task) -> None:
        """Another child, of a predecessor, made this task's record first: that one is the task."""
        rival = self._adopt(task.record.key)
        self.tell("exists", rival)
        self._drain_adopted(rival)

    def _bury(self, pid: int) -> None:
        task = self._mains.get(pid)
        if task is not None:
            self._bury_main(task)
        elif pid == self.launcher.spare_pid:
            self.launcher.dismiss()
        else:
            self._bury_orphan(pid)

    def _bury_main(self, task: Task) -> None:
        if task.status_fd >= 0:
            # Died before its start was looked at. The pipe has ended, so this is no wait.
            while task.status_fd >= 0:
                self._read_status(task)
            if self._mains.get(task.record.pid) is not task:
                # Waited for with that: it never ran, or gave way to another's record.
                return
        # A zombie keeps its session's number from being used again, so what it left behind is
        # found now or, with bad luck, never.
        self._census.claim_strays(self._open_tasks())
        task.ending.code = os.waitstatus_to_exitcode(self._wait_for_main(task))
        task.ending.reaped = True
        self._drain(task)

    def _wait_for_main(self, task: Task) -> int:
        pid, status, usage = os.wait4(task.record.pid, 0)
        task.ending.add_usage(usage)
        del self._mains[pid]
        return status

    def _bury_orphan(self, pid: int) -> None:
        """Quick, as a task may make them by the thousand: no survey for the sake of one."""
        seen = proctable.look(pid)
        _, _, usage = os.wait4(pid, 0)
        for task in self._open_tasks():
            if seen is not None and (seen.identity in task.members or task.leads(seen.session)):
                task.forget_process(seen.identity)
                task.ending.add_usage(usage)

    def _drain(self, task: Task) -> None:
        """The main process is gone: end the rest of the tree."""
        task.state = DRAINING
        if self._close_if_empty(task):
            return
        if task.kill_at_ns is None:
            self._set_kill(task, task.record.grace_s)
        elif not task.is_child:
            task.wake_at_ns = time.monotonic_ns()
        if task.cgroup is not None:
            self._groups.watch(task.cgroup)
        self._terminate(task)

    def _close_the_empty(self) -> None:
        for task in self._open_tasks():
            if task.state == DRAINING:
                self._close_if_empty(task)

    def _close_if_empty(self, task: Task) -> bool:
        if not self._census.is_empty(task, self._open_tasks()):
            return False
        self._close(task)
        return True

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

    def _set_kill(self, task: Task, grace_s: float) -> None:
        at_ns = time.monotonic_ns() + round(grace_s * 1e9)
        task.kill_at_ns = at_ns if task.kill_at_ns is None else min(task.kill_at_ns, at_ns)
        # An adopted task whose main process is gone has to be watched from now on.
        task.wake_at_ns = task.kill_at_ns if task.is_child else time.monotonic_ns()

    def _press_on(self, task: Task, now_ns: int) -> None:
        """The grace is over, or it is time to look whether an adopted tree is empty."""
        if task.state == DRAINING and self._close_if_empty(task):
            return
        kill_at_ns = now_ns if task.kill_at_ns is None else task.kill_at_ns
        if now_ns < kill_at_ns:
            pause_ns = WATCH_PAUSE_NS if task.state == DRAINING and not task.is_child else 10**18
            task.wake_at_ns = min(kill_at_ns, now_ns + pause_ns)
            return
        self._kill(task)
        task.pause_ns = min(KILL_PAUSE_MAX_NS, max(KILL_PAUSE_NS, task.pause_ns * 3 // 2))
        task.wake_at_ns = now_ns + task.pause_ns

    def _terminate(self, task: Task) -> None:
        """TERM, once to each process; CONT wakes those that SIGSTOP keeps from obeying."""
        table, targets = self._targets(task)
        signals = (signal.SIGTERM, signal.SIGCONT)
        # One call reaches a whole group at once, even while it forks. Only the pid of a child not
        # waited for is sure to be its own, and only after exec to lead a group.
        leads = task.is_child and task.state == RUNNING
        group = task.record.pid if leads else 0
        for identity in targets - task.told:
            seen = table.get(identity[0])
            if not leads or seen is None or seen.group != group:
                proctable.send(identity, signals)
        if leads:
            for number in signals:
                _send_to_group(group, number)
        task.told |= targets

    def _kill(self, task: Task) -> None:
        """KILL to all, and to their groups: a process may fork and end faster than it is found."""
        # Nothing gets away from this, but one that was moved elsewhere, or is not in it yet.
        is_group_told = task.cgroup is not None and task.cgroup.kill()
        table, targets = self._targets(task)
        seen_now = [table[pid] for pid, _ in targets if pid in table]
        # A child that has only just been forked is still in our own group.
        for group in {seen.group for seen in seen_now} - {0, 1, os.getpgrp()}:
            _send_to_group(group, signal.SIGKILL)
        for identity in targets:
            proctable.send(identity, (signal.SIGKILL,))
        if not is_group_told:
            self._chase(task)

    def _chase(self, task: Task) -> None:
        """One that also leaves its group each time is only caught by being quick."""
        misses = 0
        for _ in range(CHASES_MAX):
            pid = self._census.newest_orphan(task)
            if pid is not None:
                # A child keeps its number until we wait for it.
                os.kill(pid, signal.SIGKILL)
            misses = misses + 1 if pid is None else 0
            if misses > 3:
                return

    def _targets(self, task: Task) -> tuple[dict[int, Seen], set[Identity]]:
        table = self._census.survey(self._open_tasks())
        return table, task.members | ({task.main} if task.main_lives else set())

    def _adopt(self, key: TaskKey) -> Task:
        """A task by its record alone: exited, running, or (its main process gone) draining."""
        task = Task(records.read_record(key))
        task.is_child = False
        self.tasks[key] = task
        task.evidence = records.read_exit(key)
        if task.evidence is not None:
            task.state = EXITED
        elif task.record.boot_id != self._boot_id:
            # Nothing of it can live, and its pid and start time may be those of a stranger here.
            self._close(task)
        else:
            task.state = RUNNING if self._watch_main(task) else DRAINING
        return task

    def _drain_adopted(self, task: Task) -> None:
        """Only after all were adopted: each tells which processes are not another's."""
        if task.state == DRAINING:
            self._drain(task)

    def _watch_main(self, task: Task) -> bool:
        pid = task.record.pid
        try:
            pidfd = os.pidfd_open(pid) if pid > 0 else -1
        except ProcessLookupError:
            return False
        if pidfd < 0:
            return False
        seen = proctable.look(pid)
        if seen is None or seen.identity != task.main:
            os.close(pidfd)
            return False
        task.pidfd = pidfd
        self._loop.watch(pidfd, functools.partial(self._adopted_main_ended, task))
        return True

    def _adopted_main_ended(self, task: Task) -> None:
        self._loop.unwatch(task.pidfd)
        os.close(task.pidfd)
        task.pidfd = -1
        self._drain(task)

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


def _told(line: bytes) -> tuple[str, str]:
    word, _, rest = line.decode("utf-8", "replace").partition(" ")
    return word, rest


def _send_to_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
