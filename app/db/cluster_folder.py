"""The folder of an embedded PostgreSQL: its data, its password, its port, and the way in."""

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from app.db import binaries
from app.db.binaries import Binaries, EmbeddedError

HOST = "127.0.0.1"
USER = "postgres"
DATABASE = "xce"
LOCK_S = 90.0
BUILTIN_LOCALE_SINCE = 17
# The unprivileged user may be kept out of a folder above the data, say root's home. No folder is
# opened for it: root enters the data, and the server reaches them through its own working
# directory, which Linux resolves without looking at the folders above.
THROUGH_WORKING_DIRECTORY = "/proc/self/cwd"


class WrongVersionError(EmbeddedError):
    """The data were written by another major version of PostgreSQL than the programs are of."""


class ClusterFolder:
    """What lies where in the folder that the caller gave. Holds no state but the lock."""

    def __init__(
        self,
        root: Path,
        programs: Binaries | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        #: Called by whoever waits here for long; it may raise.
        self.check = check
        self.root = root.resolve()
        self.data_dir = self.root / "data"
        self.log = self.root / "postgres.log"
        self.user = binaries.account()
        self._passfile = self.root / "passfile"
        self._port_file = self.root / "port"
        self._programs = programs
        self._lock_fd: int | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other starter out; makes the folder."""
        self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
        give_up_at = time.monotonic() + LOCK_S
        with (self.root / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > give_up_at:
                        message = (
                            f"another program has been starting {self.root} for {LOCK_S:.0f} s"
                        )
                        raise EmbeddedError(message) from None
                self.check()
                time.sleep(0.02)
            self._lock_fd = lock.fileno()
            try:
                yield
            finally:
                self._lock_fd = None

    @property
    def is_initialised(self) -> bool:
        return (self.data_dir / "PG_VERSION").exists()

    def initialise(self, *, durable: bool) -> None:
        """Make a new cluster; a crash on the way leaves nothing that looks like one."""
        scratch = self.root / "data.tmp"
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir(mode=0o700)
        if self.user is not None:
            os.chown(scratch, self.user.uid, self.user.gid)
        password = secrets.token_urlsafe(24)
        write_private(self._passfile, f"{HOST}:*:*:{USER}:{password}\n")
        made = self._initdb(scratch, password, durable)
        if made.returncode != 0:
            raise EmbeddedError(f"initdb failed:\n{made.stderr.strip()}")
        scratch.rename(self.data_dir)
        if durable:
            sync_folder(self.root)

    def _initdb(
        self, scratch: Path, password: str, durable: bool
    ) -> subprocess.CompletedProcess[str]:
        # The password goes through a file without a name that only the server's user may read.
        with tempfile.TemporaryFile("w+") as password_file:
            password_file.write(password)
            password_file.flush()
            password_file.seek(0)
            if self.user is not None:
                os.fchown(password_file.fileno(), self.user.uid, self.user.gid)
            command = [self.program("initdb"), "-D", self._as_seen(scratch), "-U", USER]
            command += ["-A", "scram-sha-256", "--pwfile=/dev/stdin", "-E", "UTF8", "--locale=C"]
            if self.programs.major >= BUILTIN_LOCALE_SINCE:
                command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
            if not durable:
                command.append("--no-sync")
            # It keeps the lock too: when we are killed, a next starter waits until it has ended
            # instead of removing the folder under it.
            held = () if self._lock_fd is None else (self._lock_fd,)
            return binaries.run_as(
                self.user, command, folder=scratch, stdin=password_file, pass_fds=held
            )

    @property
    def programs(self) -> Binaries:
        """The given programs, or else those that fit the data."""
        if self._programs is None:
            major = self.major()
            fitting = (b for b in binaries.available() if major in (None, b.major))
            self._programs = next(fitting, None) or binaries.find()
        return self._programs

    def program(self, name: str) -> str:
        return self.programs.program(name)

    def major(self) -> int | None:
        """The major version that wrote the data; None when there are none."""
        try:
            return int((self.data_dir / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None

    def check_version(self) -> None:
        data, here = self.major(), self.programs.major
        if data not in (None, here):
            raise WrongVersionError(
                f"the data in {self.data_dir} were written by PostgreSQL {data}, and the programs "
                f"here are PostgreSQL {here}. Start the data with PostgreSQL {data} and dump them "
                f"with pg_dumpall, move the folder away, start again, and restore with psql."
            )

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run one of the programs on the data, as the server's user."""
        return binaries.run_as(self.user, command, folder=self.data_dir)

    def data_dir_as_seen(self) -> str:
        """The path of the data for programs that run as the server's user in that folder."""
        return self._as_seen(self.data_dir)

    def _as_seen(self, path: Path) -> str:
        if self.user is None or binaries.can_reach(self.user, path):
            return str(path)
        if not Path(THROUGH_WORKING_DIRECTORY).exists():
            raise EmbeddedError(f"the user {self.user.name} cannot reach {path}: choose another")
        return THROUGH_WORKING_DIRECTORY

    def postmaster(self) -> tuple[int, int] | None:
        """Process id and port that the lock file in the data names; None when it names none."""
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
            return int(lines[0]), int(lines[3])
        except (FileNotFoundError, ValueError, IndexError):
            return None

    def password(self) -> str | None:
        try:
            return self._passfile.read_text().strip().rpartition(":")[2]
        except FileNotFoundError:
            return None

    def url(self, port: int, database: str) -> str:
        """The address of a database; the password stays in a file that only we may read."""
        passfile = quote(str(self._passfile))
        return f"postgresql://{USER}@{HOST}:{port}/{database}?passfile={passfile}"

    def kept_port(self) -> int | None:
        try:
            return int(self._port_file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def keep_port(self, port: int) -> None:
        if self.kept_port() != port:
            self._port_file.write_text(f"{port}\n")

    def log_since(self, position: int) -> str:
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read()[-4000:].decode(errors="replace").strip()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.unlink(missing_ok=True)
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def sync_folder(path: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
