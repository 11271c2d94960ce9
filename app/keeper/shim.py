"""The parent of one task, which inherits its whole tree: who belongs to it is never a guess.

A process that leaves session, group, environment and parents behind still becomes this process's
child once its own parent is gone. So the task is over exactly when there is no child left, and
whatever has to die is, at the latest when its parent has died, a child to be killed. The shim
outlives its keeper, keeps the exit code for a successor, and minds the fence where no keeper does.
"""

import contextlib
import os
import signal
import sys
import time

from app.keeper import linux, proctable, records
from app.keeper.child import DESCRIPTORS_MAX, Child, Order, Pipes
from app.keeper.fence import boottime_ns, read_deadline_ns
from app.keeper.proctable import Identity
from app.keeper.records import Record

TERMINATE = signal.SIGTERM
KILL = signal.SIGUSR1
LEARN = signal.SIGUSR2
"""That it is told whose shim it is, or that nobody will tell it any more."""

BURIALS_MAX = 200
"""In one go: a task whose processes end faster than they are buried must not outrun an order."""

KILL_PAUSE_S = 1.0
"""Deaths wake a shim that kills; this is for what cannot die at once."""

LEARN_PAUSE_NS = 1_000_000_000
"""A child that is on its way when the keeper dies makes its record, or ends."""

FENCE_LOOK_NS = 60_000_000_000
FENCE_SLACK_NS = 1_000_000_000
"""What a keeper that lives is given to act first; well below the controller's own 5 s."""

OBEDIENCE_NS = 2_000_000
"""From the TERM to a task's group to the reading of its tree."""

FOREVER_NS = 1 << 62

_END = (signal.SIGTERM, signal.SIGCONT)


class Shim:
    """Forked from the keeper, it forks the child, waits for all that come of it, and goes."""

    def __init__(self, pipes: Pipes, key_fd: int, report_fd: int) -> None:
        self._pipes = pipes
        self._key_fd = key_fd
        self._report_fd = report_fd
        self._identity: Identity = (0, 0)
        self._main_pid = -1
        self._status: int | None = None
        self._told: set[Identity] = set()  # Those that got their TERM.
        self._is_group_told = False
        self._rest_at_ns = FOREVER_NS
        self._is_ordered = False
        self._is_killing = False
        self._by_fence = False
        self._kill_at_ns: int | None = None
        self._look_at_ns = FOREVER_NS
        self._cpu_used_us = 0
        self._peak_kib = 0
        self._record: Record | None = None
        self._is_fenced = True

    def run(self, order: Order | None, changed_signals: tuple[int, ...]) -> None:
        """Never returns. Without an order the child waits for one."""
        try:
            self._leave_the_keeper()
            self._fork(order, changed_signals)
            self._learn()
            self._watch()
        except Exception as error:
            print(f"shim of {self._main_pid}: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(0)

    def _leave_the_keeper(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        signal.set_wakeup_fd(-1)
        os.setsid()
        linux.become_parent_of_all("xce-shim")
        linux.hear_of_parents_death(LEARN)
        own = proctable.look(os.getpid())
        assert own is not None
        self._identity = own.identity
        kept = sorted((*self._pipes, self._key_fd, self._report_fd))
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

    def _learn(self) -> None:
        """Read the record of our child; the keeper tells its key when nobody waits for it.

        One that died first tells nothing; then it is the record that names us.
        """
        try:
            told = os.read(self._key_fd, 4096)
        except BlockingIOError:
            return
        if told:
            job_id, attempt, index = map(int, told.split())
            record = records.read_record((job_id, attempt, index))
            self._record = record if record.shim == self._identity else None
        else:
            self._record = self._find_record()
        now_ns = time.monotonic_ns()
        if self._record is None:
            self._look_at_ns = now_ns + LEARN_PAUSE_NS
        else:
            self._is_fenced = self._record.fence == "stop"
            self._look_at_ns = now_ns

    def _find_record(self) -> Record | None:
        return next((r for r in records.read_all() if r.shim == self._identity), None)

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
        heard = signal.sigtimedwait((signal.SIGCHLD, TERMINATE, KILL, LEARN), patience_s)
        number = 0 if heard is None else heard.si_signo
        if number == TERMINATE:
            self._is_ordered = True
            self._terminate()
        elif number == KILL:
            self._is_killing = True
        elif number == LEARN and self._record is None:
            self._learn()
        self._heed_clock(time.monotonic_ns())

    def _heed_clock(self, now_ns: int) -> None:
        if now_ns >= self._rest_at_ns:
            self._terminate_rest()
        if self._kill_at_ns is not None and now_ns >= self._kill_at_ns:
            self._is_killing = True
        if self._is_fenced and now_ns >= self._look_at_ns:
            self._look_at_fence(self._record)

    def _look_at_fence(self, record: Record | None) -> None:
        """The keeper acts on time; this is for one that is dead or hangs."""
        if record is None:
            self._learn()
            return
        left_ns = read_deadline_ns(record.boot_id) + FENCE_SLACK_NS - boottime_ns()
        if left_ns < 0:
            self._is_fenced = False
            self._by_fence = self._status is None and not self._is_ordered
            self._end()
        # By the monotonic clock, which stands still while the machine sleeps: look again soon.
        self._look_at_ns = time.monotonic_ns() + min(left_ns, FENCE_LOOK_NS)

    def _patience_s(self) -> float:
        if self._is_killing:
            return KILL_PAUSE_S
        at_ns = min(self._rest_at_ns, self._look_at_ns if self._is_fenced else FOREVER_NS)
        if self._kill_at_ns is not None:
            at_ns = min(at_ns, self._kill_at_ns)
        return max(at_ns - time.monotonic_ns(), 0) / 1e9

    def _end(self) -> None:
        """The main process or its leave to run is gone: TERM to the rest, KILL after the grace."""
        if self._kill_at_ns is None:
            grace_s = 0.0 if self._record is None else self._record.grace_s
            self._kill_at_ns = time.monotonic_ns() + round(grace_s * 1e9)
        self._terminate()

    def _terminate(self) -> None:
        """TERM, once to each process; CONT wakes those that SIGSTOP keeps from obeying."""
        if self._status is not None or self._is_group_told:
            self._terminate_rest()
            return
        # One call reaches a whole group at once, even while it forks. The number is the main
        # process's, which is sure to be its own until it was waited for. Most tasks are one
        # process that obeys at once, and then there is no rest to look for.
        try:
            for number in _END:
                os.killpg(self._main_pid, number)
        except (ProcessLookupError, PermissionError):
            # It has not made its group yet, or is another user's now.
            self._terminate_rest()
            return
        self._is_group_told = True
        self._rest_at_ns = time.monotonic_ns() + OBEDIENCE_NS

    def _terminate_rest(self) -> None:
        """What cannot be looked at now is left to KILL; emptiness is never learnt here."""
        self._rest_at_ns = FOREVER_NS
        told_group = self._main_pid if self._is_group_told and not self._told else 0
        with contextlib.suppress(OSError):
            tree = [seen for seen in proctable.own_tree().values() if not seen.is_dead]
            for seen in tree:
                if seen.group != told_group and seen.identity not in self._told:
                    proctable.send(seen.identity, _END)
            self._told |= {seen.identity for seen in tree}

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
        self._record = self._record or self._find_record()
        if self._record is not None:
            with contextlib.suppress(OSError):
                records.append(self._record, line)
