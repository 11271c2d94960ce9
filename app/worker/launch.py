"""Turns a task's launch into what the keeper needs: user, folder, environment, output."""

import contextlib
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.worker.reconcile import Key, Launch
from app.worker.tickets import Stream

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Accounts of people start here; what is below belongs to the system.
UID_MIN = 1000
#: Stands for "nobody" whatever it is called, and what the kernel shows for users it cannot map.
UID_NOBODY = 65534
UNFINISHED = ".unfinished-"
DEFAULT_OUTPUTS: Mapping[Stream, str] = {"stdout": "%j.%a.%t.out", "stderr": "%j.%a.%t.err"}


class LaunchRefused(Exception):
    """This host will not start the task; the message is the reason that its owner reads."""


@dataclass(frozen=True)
class RunAs:
    """The user a task runs as; `is_other` when that is not the worker's own."""

    name: str
    home: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    is_other: bool = False


@dataclass(frozen=True)
class Prepared:
    """A task ready to be handed to the keeper; a maximum of 0 is none."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdout: str
    stderr: str
    run_as: RunAs
    cpus_max: int = 0
    mem_mib_max: int = 0


class Launcher:
    """Prepares tasks on one host.

    `as_starter` keeps root's own uid although it is root (`xce up`, one person's machine).
    `limit_cpus` lets no task use more CPU than it has asked for.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        as_starter: bool,
        api_url: str | None,
        limit_cpus: bool = False,
    ) -> None:
        self._jobs = run_dir.absolute() / "jobs"
        self._api_url = api_url
        self._limit_cpus = limit_cpus
        for left in self._jobs.glob(f"{UNFINISHED}*"):
            with contextlib.suppress(OSError):
                left.rmdir()
        self._own = _own_user()
        self._as_starter = as_starter
        self._keeps_user = as_starter or self._own.uid != 0
        # Who runs jobs as root on many people's behalf gives them the system's programs only.
        own_path = os.environ.get("PATH") if self._keeps_user else None
        self._path = own_path or SYSTEM_PATH

    @property
    def jobs(self) -> Path:
        """Where the run folders are, one a job."""
        return self._jobs

    def prepare(self, key: Key, launch: Launch) -> Prepared:
        """Everything the start needs; makes the run folder. Raises LaunchRefused."""
        run_as = self._user(launch.os_user, launch.owner)
        folder = self._jobs / str(key.job_id)
        try:
            stdout = output_name("stdout", launch.stdout, key=key, host=launch.host)
            stderr = output_name("stderr", launch.stderr, key=key, host=launch.host)
        except ValueError as error:
            raise LaunchRefused(f"output: {error}") from None
        self._make_folder(folder, run_as)
        return Prepared(
            argv=launch.command,
            env=self._environment(key, launch, folder=folder, run_as=run_as),
            cwd=str(folder / launch.cwd) if launch.cwd else str(folder),
            stdout=str(self._jobs / stdout),
            stderr=str(self._jobs / stderr),
            run_as=run_as,
            cpus_max=launch.cpus if self._limit_cpus else 0,
            mem_mib_max=launch.mem_mib,
        )

    def _user(self, os_user: str | None, owner: str) -> RunAs:
        if self._keeps_user:
            if self._own.uid != 0 and os_user not in (None, self._own.name):
                raise LaunchRefused(f"os_user_refused: this worker can only be {self._own.name}")
            if not self._as_starter and os_user is None:
                self._check_owner(owner)
            return self._own
        if os_user is None:
            raise LaunchRefused("os_user_refused: no user of this system is mapped to the owner")
        return _other_user(os_user)

    def _check_owner(self, owner: str) -> None:
        """Without root nothing keeps two owners apart, so only the first one's jobs run here.

        An operator who maps owners to this worker's user has decided otherwise. Raises
        LaunchRefused.
        """
        path = self._jobs.parent / "owner"
        with contextlib.suppress(FileExistsError), open(path, "x", encoding="utf-8") as file:
            file.write(owner)
        if path.read_text("utf-8") != owner:
            raise LaunchRefused(
                "os_user_refused: this worker has no root and runs the jobs of another owner"
            )

    def _make_folder(self, folder: Path, run_as: RunAs) -> None:
        if os.path.lexists(folder):
            self._check_folder(folder, run_as)
            return
        try:
            self._jobs.mkdir(mode=0o711, exist_ok=True)
            # Under another name until it is the user's: a worker that dies between would leave a
            # folder that no later task of the job could write to.
            fresh = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=self._jobs))
            if run_as.is_other:
                os.chown(fresh, run_as.uid, run_as.gid, follow_symlinks=False)
            fresh.rename(folder)
        except OSError as error:
            raise LaunchRefused(f"run folder: {error.strerror}: {error.filename}") from error

    def _check_folder(self, folder: Path, run_as: RunAs) -> None:
        """One of an earlier attempt will do; one of another user holds what is not to be read."""
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise LaunchRefused("run folder: not a folder")
        if found.st_uid != run_as.uid:
            raise LaunchRefused("run folder: belongs to another user")

    def _environment(
        self, key: Key, launch: Launch, *, folder: Path, run_as: RunAs
    ) -> dict[str, str]:
        env = {"PATH": self._path, "HOME": run_as.home, "USER": run_as.name, "LANG": "C.UTF-8"}
        env.update(launch.env)
        env.update(_own_variables(key, launch))
        env["XCE_RUN_DIR"] = str(folder)
        if self._api_url:
            env["XCE_API_URL"] = self._api_url
        return env


def _own_variables(key: Key, launch: Launch) -> Mapping[str, str]:
    return {
        "XCE_JOB_ID": str(key.job_id),
        "XCE_ATTEMPT": str(key.attempt),
        "XCE_TASK_INDEX": str(key.index),
        "XCE_HOST": launch.host,
        "XCE_CPUS": str(launch.cpus),
        "XCE_MEM_MIB": str(launch.mem_mib),
    }


def output_name(stream: Stream, pattern: str | None, *, key: Key, host: str) -> str:
    """The file that a task's stream is written to, below the folder of all run folders.

    Raises ValueError when the pattern leads out of the task's own.
    """
    pattern = pattern or DEFAULT_OUTPUTS[stream]
    folder = str(key.job_id)
    name = os.path.normpath(os.path.join(folder, expanded(pattern, key=key, host=host)))
    if not name.startswith(f"{folder}/"):
        raise ValueError(f"{pattern!r} leads out of the run folder")
    return name


def expanded(pattern: str, *, key: Key, host: str) -> str:
    """The pattern with %j, %a, %t and %h replaced; %% is a percent sign, anything else stays."""
    values = {
        "j": str(key.job_id),
        "a": str(key.attempt),
        "t": str(key.index),
        "h": host,
        "%": "%",
    }
    return re.sub("%(.)", lambda found: values.get(found[1], found[0]), pattern)


def _own_user() -> RunAs:
    uid, gid = os.getuid(), os.getgid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        # Containers run under numbers that nobody entered.
        return RunAs(name=str(uid), home="/", uid=uid, gid=gid)
    return RunAs(name=entry.pw_name, home=entry.pw_dir, uid=uid, gid=gid)


def _other_user(name: str) -> RunAs:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LaunchRefused(f"os_user_refused: this host knows no user {name}") from None
    if entry.pw_uid < UID_MIN or entry.pw_uid == UID_NOBODY:
        raise LaunchRefused(f"os_user_refused: {name} is an account of the system")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return RunAs(
        name=name,
        home=entry.pw_dir,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=groups,
        is_other=True,
    )
