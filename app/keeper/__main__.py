"""Start the keeper of a run folder: take the lock, listen, let the starter go, and serve."""

import contextlib
import errno
import fcntl
import gc
import os
import signal
import socket
import sys
import time

from app.keeper import cgroups, linux, records
from app.keeper.cgroups import Cgroups
from app.keeper.child import DESCRIPTORS_MAX
from app.keeper.fence import Fence
from app.keeper.loop import Loop
from app.keeper.processes import Processes
from app.keeper.server import Server
from app.keeper.spawn import Launcher

SOCKET = "keeper.sock"
LOCK = "keeper.lock"
LOG = "keeper.log"
LOG_BYTES_MAX = 1024 * 1024

EXIT_ANOTHER_SERVES = 3
EXIT_STILL_LOCKED = 4

TAKE_OVER_LIMIT_S = 30
"""Longer than a killed keeper's child can be on its way to exec, during which it holds the lock."""


def main(arguments: list[str]) -> int:
    """Returns 0 in the starter once clients can connect; the keeper itself goes on detached."""
    if len(arguments) != 1:
        print("usage: keeper RUN_DIR", file=sys.stderr)
        return 2
    os.umask(0o077)
    # All files are named from here on relative to the run folder, so that the path of the
    # socket fits its 108 bytes wherever the folder is.
    os.chdir(arguments[0])
    os.closerange(3, DESCRIPTORS_MAX)
    os.makedirs(records.RECORDS, mode=0o700, exist_ok=True)
    lock_fd = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    refusal = _lock(lock_fd)
    if refusal:
        return refusal
    listener = _listen()
    if os.fork() > 0:
        # The lock and the socket live on in the child.
        os._exit(0)
    _detach()
    _serve(lock_fd, listener)
    os.unlink(SOCKET)
    return 0


def _lock(lock_fd: int) -> int:
    """0 with the lock; otherwise why not, as an exit code."""
    give_up_at = time.monotonic() + TAKE_OVER_LIMIT_S
    while True:
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return 0
        except BlockingIOError:
            if _another_serves():
                return EXIT_ANOTHER_SERVES
        if time.monotonic() > give_up_at:
            return EXIT_STILL_LOCKED
        time.sleep(0.005)


def _another_serves() -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A full queue of a living keeper refuses with EAGAIN, a dead one's socket otherwise.
        probe.setblocking(False)
        return probe.connect_ex(SOCKET) in (0, errno.EAGAIN)


def _listen() -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(SOCKET)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def _detach() -> None:
    os.setsid()
    log_fd = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.fstat(log_fd).st_size > LOG_BYTES_MAX:
        os.ftruncate(log_fd, 0)
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd, standard in ((nothing, 0), (nothing, 1), (log_fd, 2)):
        os.dup2(fd, standard)
    os.close(log_fd)
    os.close(nothing)
    linux.become_parent_of_all("xce-keeper")


def _serve(lock_fd: int, listener: socket.socket) -> None:
    # For whoever has to end a keeper that hangs.
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, b"%d\n" % os.getpid(), 0)
    _set_signals()
    loop = Loop()
    fence = Fence(records.read_boot_id())
    processes = Processes(loop, fence, Launcher(lock_fd), _groups())
    server = Server(loop, listener, processes, fence)
    _watch_signals(loop, processes, server)
    processes.take_over()
    # What is here now stays; a collection in a forked child must not copy its pages.
    gc.collect()
    gc.freeze()
    server.run()


def _groups() -> Cgroups:
    """With a place for the tasks where the system gives us one; the log says whether and why."""
    groups = Cgroups()
    try:
        groups.take(cgroups.own_base())
    except cgroups.Unusable as reason:
        print(f"cgroup v2 is not used: {reason}", file=sys.stderr, flush=True)
    else:
        print(groups, file=sys.stderr, flush=True)
    return groups


def _watch_signals(loop: Loop, processes: Processes, server: Server) -> None:
    """CHLD wakes it; TERM leaves, and leaves every task alone, for a successor."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def woken() -> None:
        try:
            numbers = os.read(reading, 4096)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers:
            server.is_leaving = True
        processes.reap()

    loop.watch(reading, woken)


def _set_signals() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
