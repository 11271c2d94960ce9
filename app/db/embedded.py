"""A PostgreSQL server of our own on this machine: started, adopted or stopped by whoever asks."""

import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from app.db import binaries
from app.db.binaries import Binaries, EmbeddedError
from app.db.cluster_folder import DATABASE, HOST, ClusterFolder, WrongVersionError

__all__ = [
    "Binaries",
    "EmbeddedError",
    "PortTakenError",
    "Server",
    "WrongVersionError",
    "find",
    "start",
    "stop",
]

START_S = 60.0
STOP_S = 60.0
STOP_AT_ONCE_S = 1.0
CONFLICT_S = 20.0
POLL_S = 0.02
FREE_PORTS_TRIED_MAX = 5

SETTINGS = {
    "listen_addresses": HOST,
    # Loopback with a password only: a socket path over 107 bytes would abort the start.
    "unix_socket_directories": "",
    "max_connections": "200",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The details of an error quote rows, and a job's environment may be in one.
    "log_error_verbosity": "terse",
}
FAST_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PortTakenError(EmbeddedError):
    """Somebody else listens on the port."""


class ConflictError(EmbeddedError):
    """An earlier server still holds the data: it is starting, or its remains are about to go."""


@dataclass(frozen=True)
class Server:
    """A server that answers. Whoever started it decides when it stops; nothing stops it at exit."""

    root: Path
    data_dir: Path
    port: int
    pid: int
    url: str


# Servers that this process started. They are its children and it must reap them: a killed one
# stays a zombie until then, and PostgreSQL respects the lock file of a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


def start(  # noqa: PLR0913 - a set of choices, all but the folder seldom made.
    root: Path,
    *,
    port: int = 0,
    fast: bool = False,
    options: Mapping[str, str] | None = None,
    programs: Binaries | None = None,
    check: Callable[[], None] = lambda: None,
) -> Server:
    """Adopt the server that runs on this folder, or start one; it has a database `xce` then.

    Port 0 keeps the port of the last time if that is free, and takes any free one if not. `fast`
    gives up durability, for tests. The settings of a server that already runs stay as they are.
    Safe when several do it at once. `check` is called while this waits: what it raises ends the
    waiting, and a server that does not answer yet. Raises EmbeddedError.
    """
    if not 0 <= port <= 65535:
        raise EmbeddedError(f"{port} is not a port")
    settings = SETTINGS | (FAST_SETTINGS if fast else {}) | dict(options or {})
    folder = ClusterFolder(root, programs, check)
    try:
        with folder.locked():
            server = adopt_or_launch(folder, port, settings)
            create_database(folder, server)
            return server
    except OSError as error:
        raise EmbeddedError(f"the embedded PostgreSQL in {root}: {error}") from error


def find(root: Path) -> Server | None:
    """The server that runs on this folder; None when none answers."""
    return adopt(ClusterFolder(root))


def stop(server: Server, *, patience_s: float = STOP_S) -> None:
    """Stop the server: what runs is cancelled, what was committed is kept. Twice is harmless.

    What is not over within the patience is cut off, and recovers at its next start.
    """
    folder = ClusterFolder(server.root)
    if not folder.data_dir.exists():
        reap(server.pid, signal.SIGQUIT)
        return
    for mode, wait_s in (("fast", patience_s), ("immediate", STOP_AT_ONCE_S)):
        command = [folder.program("pg_ctl"), "stop", "-m", mode, "-w"]
        command += ["-t", str(max(1, int(wait_s))), "-D", folder.data_dir_as_seen()]
        # One that is shutting down answers nobody any more, and lives all the same.
        if folder.run(command).returncode == 0 or not is_running(folder, server.pid):
            break
    else:
        # It hangs. Its children notice, and end.
        os.kill(server.pid, signal.SIGKILL)
    reap(server.pid)


def is_running(folder: ClusterFolder, pid: int) -> bool:
    """Whether this server still holds the data."""
    postmaster = folder.postmaster()
    child = _children.get(pid)
    if (
        postmaster is None
        or postmaster[0] != pid
        or (child is not None and child.poll() is not None)
    ):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def adopt_or_launch(folder: ClusterFolder, port: int, settings: Mapping[str, str]) -> Server:
    give_up_at = time.monotonic() + CONFLICT_S
    while True:
        reap_the_dead()
        server = adopt(folder)
        if server is not None:
            if port not in (0, server.port):
                raise EmbeddedError(f"PostgreSQL already runs on {folder.root}, port {server.port}")
            return server
        try:
            return launch(folder, port, settings)
        except ConflictError:
            if time.monotonic() > give_up_at:
                raise
            folder.check()
            time.sleep(0.1)


def adopt(folder: ClusterFolder) -> Server | None:
    """The server that this folder's lock file names, if it answers and its data are ours."""
    postmaster = folder.postmaster()
    password = folder.password()
    if postmaster is None or password is None:
        return None
    pid, port = postmaster
    try:
        with psycopg.connect(
            folder.url(port, "postgres"), password=password, connect_timeout=3
        ) as conn:
            row = conn.execute("select current_setting('xce.data_directory', true)").fetchone()
    except psycopg.OperationalError:
        return None
    # The port alone proves nothing: after a crash somebody else may have taken it.
    if row is None or row[0] != str(folder.data_dir):
        return None
    return Server(folder.root, folder.data_dir, port, pid, folder.url(port, DATABASE))


def launch(folder: ClusterFolder, port: int, settings: Mapping[str, str]) -> Server:
    if not folder.is_initialised:
        folder.initialise(durable=settings.get("fsync") != "off")
    folder.check_version()
    ports = iter((port,)) if port else itertools.islice(candidates(folder), FREE_PORTS_TRIED_MAX)
    refusal = PortTakenError("no port is free")
    for candidate in ports:
        try:
            server = run_server(folder, candidate, settings)
        except PortTakenError as error:
            refusal = error
        else:
            folder.keep_port(candidate)
            return server
    raise refusal


def candidates(folder: ClusterFolder) -> Iterator[int]:
    """The port of the last time, then free ones."""
    kept = folder.kept_port()
    if kept is not None:
        yield kept
    while True:
        yield bound_port(0)


def bound_port(port: int) -> int:
    """The port that listening on this one would get. Raises PortTakenError."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortTakenError(f"port {port} is not to be had: {error.strerror}") from error
        return int(probe.getsockname()[1])


def run_server(folder: ClusterFolder, port: int, settings: Mapping[str, str]) -> Server:
    # Asked before, because a stranger who accepts and says nothing costs a time-out.
    bound_port(port)
    given = {"port": str(port), "xce.data_directory": str(folder.data_dir)} | dict(settings)
    command = [folder.program("postgres"), "-D", folder.data_dir_as_seen()]
    for name, value in given.items():
        command += ["-c", f"{name}={value}"]
    with folder.log.open("ab") as log:
        log_start = log.tell()
        process = subprocess.Popen(
            command,
            cwd=folder.data_dir,
            env=binaries.ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **binaries.identity(folder.user),
        )
    _children[process.pid] = process
    give_up_at = time.monotonic() + START_S
    try:
        while process.poll() is None and time.monotonic() < give_up_at:
            server = adopt(folder)
            if server is not None and server.pid == process.pid:
                return server
            folder.check()
            time.sleep(POLL_S)
    except BaseException:
        reap(process.pid, signal.SIGQUIT)
        raise
    reap(process.pid, signal.SIGQUIT)
    raise refusal_of(folder.log_since(log_start), port)


def refusal_of(log: str, port: int) -> EmbeddedError:
    """Why a server did not start, told from what it logged (in English: its locale is C)."""
    if 'lock file "postmaster.pid"' in log or "pre-existing shared memory block" in log:
        return ConflictError(f"another PostgreSQL still holds the data:\n{log}")
    if "could not create any TCP/IP sockets" in log:
        return PortTakenError(f"port {port} is taken by somebody else")
    return EmbeddedError(f"PostgreSQL does not start:\n{log or 'it logged nothing'}")


def create_database(folder: ClusterFolder, server: Server) -> None:
    with psycopg.connect(
        folder.url(server.port, "postgres"), password=folder.password(), autocommit=True
    ) as conn:
        known = conn.execute("select from pg_catalog.pg_database where datname = %s", [DATABASE])
        if known.fetchone() is None:
            conn.execute("create database xce")


def reap(pid: int, signal_number: int | None = None) -> None:
    """Wait for a server that is our child and about to end; signal it first if asked to."""
    process = _children.pop(pid, None)
    if process is None:
        return
    if signal_number is not None:
        process.send_signal(signal_number)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def reap_the_dead() -> None:
    for pid, process in list(_children.items()):
        if process.poll() is not None:
            del _children[pid]
