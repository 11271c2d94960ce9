"""What to run, and a shim and child to run it: a pair that waits already, else a fresh one."""

import contextlib
import marshal
import os
import signal

from app.keeper import proctable, records
from app.keeper.cgroups import Limits, Place
from app.keeper.child import Order, Pipes
from app.keeper.records import TaskKey
from app.keeper.shim import Shim

HANDLED_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"

_PIPE_BYTES = 60_000
"""What an empty pipe takes at once; a longer order goes to a fresh fork, by memory."""


class Spec:
    """What to run, checked and encoded."""

    __slots__ = (
        "argv",
        "cgroup",
        "cwd",
        "env",
        "fence",
        "grace_s",
        "key",
        "limits",
        "stderr",
        "stdout",
        "task_id",
        "user",
    )

    def __init__(self, key: TaskKey) -> None:
        self.key = key
        self.task_id: object = None
        self.argv: list[bytes] = []
        self.env: dict[bytes, bytes] = {}
        self.cwd = b"/"
        self.stdout = b"/dev/null"
        self.stderr = b"/dev/null"
        self.user: tuple[int, int, list[int]] | None = None
        self.fence = "stop"
        self.grace_s = 10.0
        self.limits = Limits()
        self.cgroup: Place | None = None

    def programs(self) -> list[bytes]:
        """Where PATH says the program may be; an empty entry never means the current folder."""
        program = self.argv[0]
        if b"/" in program:
            return [program]
        path = self.env.get(b"PATH", _DEFAULT_PATH)
        return [os.path.join(folder, program) for folder in path.split(b":") if folder]

    def order(self, record_head: bytes, deadline_ns: int) -> Order:
        return (
            (records.record_path(self.key), record_head),
            self.cgroup,
            (self.cwd, self.stdout, self.stderr),
            self.user,
            deadline_ns,
            (self.programs(), self.argv, self.env),
        )


class Launched:
    """A shim and its child on the way to exec, or waiting for its order."""

    __slots__ = ("key_fd", "order_fd", "pid", "report_fd", "start_ticks", "status_fd")

    def __init__(self, pid: int, writing: tuple[int, int], reading: tuple[int, int]) -> None:
        self.pid = pid
        self.order_fd, self.key_fd = writing
        self.report_fd, self.status_fd = reading
        seen = proctable.look(pid)
        self.start_ticks = 0 if seen is None else seen.start_ticks

    def close(self) -> None:
        """Let go of one that has no order, or took none."""
        for fd in (self.key_fd, self.report_fd, self.status_fd):
            os.close(fd)


class Launcher:
    """Forks shims with a child each, and keeps a spare pair that is ready before it is needed.

    Two forks and the pages that are copied after them cost more than all else between an order
    and exec, so they are paid in advance. A spare dies with its keeper: its pipes end.
    """

    def __init__(self, lock_fd: int) -> None:
        self._lock_fd = lock_fd
        self._spare: Launched | None = None
        self.wants_spare = True
        # Found out once, here; each child would find it out anew.
        usual = (signal.SIG_DFL, None)
        changed = (n for n in signal.valid_signals() if signal.getsignal(n) not in usual)
        self._changed_signals = tuple(changed)

    @property
    def spare_pid(self) -> int:
        return -1 if self._spare is None else self._spare.pid

    def launch(self, order: Order) -> Launched:
        """Whether it comes to exec is told by the status pipe. OSError when there is no shim."""
        text = marshal.dumps(order)
        spare, self._spare = self._spare, None
        self.wants_spare = True
        if spare is not None and not _send(spare, text):
            spare.close()
            spare = None
        return spare or self._fork(order)

    def prepare(self) -> None:
        """Have a spare. Where the machine has no room for one, the next start asks again."""
        self.wants_spare = False
        with contextlib.suppress(OSError):
            self._spare = self._fork(None)

    def dismiss(self) -> None:
        """Let the spare go, or bury it, and wait until it has gone."""
        if self._spare is not None:
            os.close(self._spare.order_fd)
            self._spare.close()
            os.waitpid(self._spare.pid, 0)
            self._spare = None

    def _fork(self, order: Order | None) -> Launched:
        order_pipe, key_pipe, report_pipe, status_pipe = (os.pipe2(os.O_CLOEXEC) for _ in range(4))
        writing = order_pipe[1], key_pipe[1]
        reading = report_pipe[0], status_pipe[0]
        theirs = order_pipe[0], key_pipe[0], report_pipe[1], status_pipe[1]
        for fd in (key_pipe[0], *reading):
            os.set_blocking(fd, False)
        # Blocked around the fork: a handler that ran in the shim would wake the keeper's loop.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                pipes = Pipes(self._lock_fd, order_pipe[0], status_pipe[1])
                Shim(pipes, key_pipe[0], report_pipe[1]).run(order, self._changed_signals)
        except OSError:
            for fd in (*writing, *reading):
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
        if order is not None:
            os.close(order_pipe[1])
        return Launched(pid, writing, reading)


def _send(spare: Launched, text: bytes) -> bool:
    """False when it cannot take the order; without one it goes away, and the loop buries it."""
    try:
        is_dead = os.waitid(os.P_PID, spare.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if is_dead or len(text) > _PIPE_BYTES:
            return False
        os.write(spare.order_fd, text)
        return True
    except BrokenPipeError:
        return False
    finally:
        os.close(spare.order_fd)
