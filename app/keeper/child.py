"""The forked child: it makes its own record, takes its place and becomes the program."""

import contextlib
import errno
import marshal
import os
import signal
import time
from typing import NamedTuple

from app.keeper import cgroups, records
from app.keeper.fence import boottime_ns
from app.keeper.proctable import Seen

BLOCKED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Until exec; what came meanwhile comes then."""

START_LIMIT_S = 20
"""A child that hangs before exec (a dead file server, a pipe nobody reads) dies of its alarm."""

DESCRIPTORS_MAX = 1 << 20

Order = tuple[
    tuple[str, bytes],  # Path and first line of the record.
    cgroups.Place | None,
    tuple[bytes, bytes, bytes],  # Folder, output, errors.
    tuple[int, int, list[int]] | None,  # User, group, further groups.
    int,  # Until when the fence is open.
    tuple[list[bytes], list[bytes], dict[bytes, bytes]],  # Programs to try, arguments, environment.
]


class Pipes(NamedTuple):
    """The descriptors that a child keeps until exec.

    The lock is one of them, so that a successor of a killed keeper never takes over while a
    child is on its way that has no record yet.
    """

    lock_fd: int
    order_fd: int
    status_fd: int


class Child:
    """The steps before exec, in their order. Nothing here runs in the keeper or the shim."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._record_fd = -1
        self._stats = b""
        self._stage = "record"

    def run(self, order: Order | None, changed_signals: tuple[int, ...]) -> None:
        """Never returns. Without an order it waits for one."""
        try:
            self._leave_the_shim(changed_signals)
            self._follow(order or self._receive())
        except OSError as error:
            names = [error.strerror or type(error).__name__]
            names += [os.fsdecode(error.filename)] if error.filename else []
            self._report_failure(error.errno or 0, ": ".join(names))
        except BaseException as error:
            self._report_failure(0, type(error).__name__)
        finally:
            os._exit(127)

    def _follow(self, order: Order) -> None:
        record, cgroup, streams, user, deadline_ns, program = order
        folder, output, errors = streams
        signal.alarm(START_LIMIT_S)
        record_bytes = self._make_record(*record)
        if cgroup is not None:
            self._stage = "cgroup"
            cgroups.enter(cgroup)
        self._stage = "user"
        if user is not None:
            _change_user(*user)
        # From here on the kernel sees the task's user: no path of the user's opens what is ours.
        self._stage = "cwd"
        os.chdir(folder)
        self._stage = "output"
        _open_standard_streams(output, errors)
        self._stage = "exec"
        signal.alarm(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._pass_the_fence(deadline_ns)
        try:
            _exec(*program)
        except OSError:
            # Take back that it ran.
            os.ftruncate(self._record_fd, record_bytes)
            raise

    def _leave_the_shim(self, changed_signals: tuple[int, ...]) -> None:
        for number in changed_signals:
            # PIPE has to wait: a keeper that dies now must not take its child along.
            if number != signal.SIGPIPE:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED)
        os.setsid()
        os.umask(0o022)
        kept = sorted(self._pipes)
        for low, high in zip([2, *kept], [*kept, DESCRIPTORS_MAX], strict=True):
            os.closerange(low + 1, high)
        own = _stat(os.getpid())
        self._stats = own + _stat(os.getppid())
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipes.status_fd, b"main %d %d\n" % Seen(os.getpid(), own).identity)

    def _receive(self) -> Order:
        """The order in the pipe; the keeper writes it at once, and its end alone means go away."""
        text = os.read(self._pipes.order_fd, 1 << 16)
        if not text:
            os._exit(0)
        order: Order = marshal.loads(text)
        return order

    def _make_record(self, path: str, head: bytes) -> int:
        """Exclusive: of two children for one task, under whichever keepers, one gets past this."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._record_fd = os.open(path, flags, 0o600)
        return os.write(self._record_fd, head + self._stats)

    def _pass_the_fence(self, deadline_ns: int) -> None:
        """The last look: since the keeper's own the machine may have slept."""
        if boottime_ns() >= deadline_ns:
            self._stage = "fence"
            raise OSError(errno.ETIME, "the fence has expired")
        now_ns = time.monotonic_ns()
        os.write(self._record_fd, records.exec_line(now_ns))
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipes.status_fd, b"exec %d\n" % now_ns)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def _report_failure(self, number: int, detail: str) -> None:
        line = f"failed {self._stage} {number} {detail}\n"
        os.write(self._pipes.status_fd, line.encode("utf-8", "surrogateescape"))


def _stat(pid: int) -> bytes:
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return file.read(1024).rstrip(b"\n") + b"\n"


def _change_user(uid: int, gid: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _open_standard_streams(output: bytes, errors: bytes) -> None:
    """A link is not followed: who reads it later, as root, must find it where it is named."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    output_fd = os.open(output, flags, 0o600)
    errors_fd = output_fd if errors == output else os.open(errors, flags, 0o600)
    # Input is /dev/null already, as it is the keeper's own.
    os.dup2(output_fd, 1)
    os.dup2(errors_fd, 2)


def _exec(programs: list[bytes], arguments: list[bytes], environment: dict[bytes, bytes]) -> None:
    denied: OSError | None = None
    for program in programs:
        try:
            os.execve(program, arguments, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error
    raise denied or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])
