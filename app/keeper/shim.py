"""The parent of one task, which inherits its whole tree: who belongs to it is never a guess.

A process that leaves session, group, environment and parents behind still becomes this process's
child once its own parent is gone. So the task is over exactly when there is no child left, and
whatever has to die is, at the latest when its parent has died, a child to be killed. The shim
outlives its keeper, keeps the exit code for a successor, and minds the fence where no keeper does.
"""

import contextlib
import marshal
import os
import signal
import sys
import time

from app.keeper import linux, proctable, records
from app.keeper.child import DESCRIPTORS_MAX, Child, Order, Pipes
from app.keeper.fence import boottime_ns, read_deadline_ns
from app.keeper.proctable import Identity

TERMINATE = signal.SIGTERM
KILL = signal.SIGUSR1

BURIALS_MAX = 200
"""In one go: a task whose processes end faster than they are buried must not outrun an order."""

KILL_PAUSE_S = 1.0
"""Deaths wake a shim that kills; this is for what cannot die at once."""

FENCE_LOOK_NS = 60_000_000_000
FENCE_SLACK_NS = 1_000_000_000
"""What a keeper that lives is given to act first; well below the controller's own 5 s."""

FOREVER_S = 1e6

Duty = tuple[str, float, bool, str]
"""Path of the record, grace in seconds, whether the fence stops the task, boot id."""


class Shim:
    """Forked from the keeper, it forks the child, waits for all that come of it, and goes."""

    def __init__(self, pipes: Pipes, duty_fd: int, report_fd: int) -> None:
        self._pipes = pipes
        self._duty_fd = duty_fd
        self._report_fd = report_fd
        self._main_pid = -1
        self._status: int | None = None
        self._told: set[Identity] = set()  # Those that got their TERM.
        self._is_ordered = False
        self._is_killing = False
        self._by_fence = False
        self._kill_at_ns: int | None = None
        self._look_at_ns = 0
        self._cpu_used_us = 0
        self._peak_kib = 0
        self._path, self._grace_s, self._is_fenced, self._boot_id = "", 0.0, False, ""

    def run(self, order: Order | None, duty: Duty | None, changed_signals: tuple[int, ...]) -> None:
        """Never returns. Without an order and a duty, child and shim wait for theirs."""
        try:
            self._leave_the_keeper()
            self._fork(order, changed_signals)
            duty = duty or self._receive()
            if duty is not None:
                self._path, self._grace_s, self._is_fenced, self._boot_id = duty
            self._watch()
        except Exception as error:
            print(f"shim of {self._path or 'no task'}: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(0)

    def _leave_the_keeper(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        signal.set_wakeup_fd(-1)
        os.setsid()
        linux.become_parent_of_all("xce-shim")
        kept = sorted((*self._pipes, self._duty_fd, self._report_fd))
        for low, high in zip([2, *kept], [*kept, DESCRIPTORS_MAX], strict=True):
            os.closerange(low + 1, high)

    def _fork(self, order: Order | None, changed_signals: tuple[int, ...]) -> None:
        try:
            self._main_pid = os.fork()
        except OSError as error:
            failure = f"failed fork {error.errno or 0} {error.strerror}\n"
            os.write(self._pipes.status_fd, failure.encode())
            raise
        if self._main_pid == 0:
            Child(self._pipes).run(order, changed_signals)
        for fd in self._pipes:
            os.close(fd)

    def _receive(self) -> Duty | None:
        """None when the keeper is gone, and the child with it unless it had its order already."""
        text = os.read(self._duty_fd, 1 << 16)
        os.close(self._duty_fd)
        duty: Duty | None = marshal.loads(text) if text else None
        return duty

    def _watch(self) -> None:
        while True:
            status_before = self._status
            is_alone, is_done = self._bury()
            if is_alone or (status_before is None and self._status is not None):
                self._tell(is_empty=is_alone)
            if is_alone:
                return
            if status_before is None and self._status is not None:
                self._end()
            if self._is_killing:
                self._kill()
            self._heed(self._patience_s() if is_done else 0)

    def _bury(self) -> tuple[bool, bool]:
        """Wait for the dead; returns (no child is left, no dead one is left)."""
        for _ in range(BURIALS_MAX):
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True, True
            if pid == 0:
                return False, True
            if pid == self._main_pid:
                self._status = status
            self._cpu_used_us += round((usage.ru_utime + usage.ru_stime) * 1_000_000)
            self._peak_kib = max(self._peak_kib, usage.ru_maxrss)
        return False, False

    def _heed(self, patience_s: float) -> None:
        heard = signal.sigtimedwait((signal.SIGCHLD, TERMINATE, KILL), patience_s)
        if heard is not None and heard.si_signo == TERMINATE:
            self._is_ordered = True
            self._terminate()
        elif heard is not None and heard.si_signo == KILL:
            self._is_killing = True
        if self._kill_at_ns is not None and time.monotonic_ns() >= self._kill_at_ns:
            self._is_killing = True
        if self._is_fenced and time.monotonic_ns() >= self._look_at_ns:
            self._look_at_fence()

    def _look_at_fence(self) -> None:
        """The keeper acts on time; this is for one that is dead or hangs."""
        left_ns = read_deadline_ns(self._boot_id) + FENCE_SLACK_NS - boottime_ns()
        if left_ns < 0:
            self._is_fenced = False
            self._by_fence = self._status is None and not self._is_ordered
            self._end()
        # By the monotonic clock, which stands still while the machine sleeps: look again soon.
        self._look_at_ns = time.monotonic_ns() + min(left_ns, FENCE_LOOK_NS)

    def _patience_s(self) -> float:
        if self._is_killing:
            return KILL_PAUSE_S
        moments = [] if self._kill_at_ns is None else [self._kill_at_ns]
        moments += [self._look_at_ns] if self._is_fenced else []
        return max(min(moments) - time.monotonic_ns(), 0) / 1e9 if moments else FOREVER_S

    def _end(self) -> None:
        """The main process or its leave to run is gone: TERM to the rest, KILL after the grace."""
        if self._kill_at_ns is None:
            self._kill_at_ns = time.monotonic_ns() + round(self._grace_s * 1e9)
        self._terminate()

    def _terminate(self) -> None:
        """TERM, once to each process; CONT wakes those that SIGSTOP keeps from obeying.

        What cannot be looked at now is left to KILL; that a tree is empty is never learnt here.
        """
        with contextlib.suppress(OSError):
            self._signal_tree((signal.SIGTERM, signal.SIGCONT))

    def _signal_tree(self, signals: tuple[int, ...]) -> None:
        # One call reaches a whole group at once, even while it forks; its number is the main
        # process's, which is sure to be its own until it was waited for.
        group = self._main_pid if self._status is None else 0
        tree = [seen for seen in proctable.own_tree().values() if not seen.is_dead]
        fresh = [seen for seen in tree if seen.identity not in self._told]
        if group and any(seen.group == group for seen in fresh):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                for number in signals:
                    os.killpg(group, number)
        for seen in fresh:
            if seen.group != group:
                proctable.send(seen.identity, signals)
        self._told |= {seen.identity for seen in fresh}

    def _kill(self) -> None:
        """KILL to all children; what these leave behind are children when the news of it comes."""
        with contextlib.suppress(OSError):
            proctable.kill_children(proctable.own_children())

    def _tell(self, *, is_empty: bool) -> None:
        """To the keeper, and to the record for its successor."""
        line = records.encode(
            {
                "status": self._status,
                "is_empty": is_empty,
                "by_fence": self._by_fence,
                "cpu_used_us": self._cpu_used_us,
                "peak_kib": self._peak_kib,
                "ended_at_unix_ms": time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000,
                "ended_at_monotonic_ns": time.monotonic_ns(),
            }
        )
        with contextlib.suppress(BrokenPipeError):
            os.write(self._report_fd, line)
        if self._path:
            with contextlib.suppress(OSError):
                records.append(self._path, self._main_pid, line)
