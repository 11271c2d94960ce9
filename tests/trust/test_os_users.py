"""Whom a task may be, and that no path of a user's opens anything with the rights of root."""

import asyncio
import os
import pwd
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.daemons.worker import WorkerOptions, work
from app.worker.launch import Launcher, LaunchRefused
from app.worker.reconcile import Key, Launch
from tests.keeper.host import let_anyone_in
from tests.trust.person import GID, UID, as_root, become, owned
from tests.worker.conftest import Host, shut_down
from tests.worker.link import MemoryLink, Row

FURTHER = 47_112
PERSON = pwd.struct_passwd(("person", "x", UID, GID, "", "/", "/bin/sh"))


def launch(**members: object) -> Launch:
    fields = {"command": ("true",), "env": {}, "host": "h1", "cpus": 1, "mem_mib": 0, "gpus": 0}
    return Launch(**(fields | members))  # type: ignore[arg-type]


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system knows them, without an entry in its files."""

    def find(name: str) -> pwd.struct_passwd:
        if name != "person":
            raise KeyError(name)
        return PERSON

    monkeypatch.setattr(pwd, "getpwnam", find)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, FURTHER])


class RootHost(Host):
    """A host whose worker is root and runs jobs as their owners' users."""

    def start_worker(self) -> None:
        options = WorkerOptions(self.run_dir, as_starter=False)
        self._worker = asyncio.create_task(work(self.link, options, stopping=asyncio.Event()))

    @property
    def folder(self) -> Path:
        return self.run_dir / "jobs" / "1"

    async def ended(self, *command: str, **launched: object) -> Row:
        made = self.link.add(*command, os_user="person", **launched)
        async with asyncio.timeout(10):
            return await self.link.until(made, "ended")


@pytest.fixture
async def host(tmp_path: Path, person: None) -> AsyncIterator[RootHost]:
    made = RootHost(tmp_path / "run", MemoryLink())
    made.run_dir.mkdir(mode=0o711)
    let_anyone_in(tmp_path)
    made.start_worker()
    yield made
    await made.kill_worker()
    await shut_down(made.run_dir)


@pytest.fixture
def roots_file(tmp_path: Path) -> Path:
    """What only root may read or write."""
    made = tmp_path / "roots"
    made.write_text("of root\n")
    made.chmod(0o600)
    return made


@as_root
async def test_a_task_is_its_user_with_all_groups_and_nothing_of_root(host: RootHost) -> None:
    row = await host.ended("sh", "-c", "id -u; id -g; id -G; grep ^Cap /proc/self/status; umask")
    assert row.end["exit_code"] == 0
    uid, gid, groups, *capabilities, umask = host.output().splitlines()
    assert (uid, gid, groups, umask) == (str(UID), str(GID), f"{GID} {FURTHER}", "0022")
    held = {line.split()[0]: int(line.split()[1], 16) for line in capabilities}
    assert (held["CapEff:"], held["CapPrm:"], held["CapInh:"], held["CapAmb:"]) == (0, 0, 0, 0)
    found = host.folder.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (UID, GID, 0o700)
    assert (host.folder / "1.1.0.out").stat().st_uid == UID


@as_root
@pytest.mark.parametrize(
    ("members", "stage"),
    [
        ({"cwd": "/root"}, "cwd: Permission denied"),
        ({"cwd": "../../records"}, "cwd: Permission denied"),
        ({"stdout": "/etc/xce-test"}, "leads out of the run folder"),
        ({"stderr": "../2/x"}, "leads out of the run folder"),
        ({"stdout": "a/../../../owner"}, "leads out of the run folder"),
        ({"stdout": ".."}, "leads out of the run folder"),
        ({"stdout": "."}, "leads out of the run folder"),
        ({"stdout": "%h/../../x"}, "leads out of the run folder"),
    ],
)
async def test_paths_lead_nowhere_but_where_the_user_may_go(
    host: RootHost, members: dict[str, str], stage: str
) -> None:
    row = await host.ended("true", **members)
    assert row.events == ["gone"]
    assert stage in row.end["reason"]


@as_root
async def test_a_link_in_the_run_folder_opens_nothing_of_roots(
    host: RootHost, roots_file: Path
) -> None:
    await host.ended("sh", "-c", f"ln -s {roots_file} out; ln -s {roots_file.parent} deep")
    direct = await host.ended("echo", "x", stdout="out")
    below = await host.ended("echo", "x", stdout="deep/roots")
    assert direct.end["reason"].startswith("output: Too many levels of symbolic links")
    assert below.end["reason"].startswith("output: Permission denied")
    assert roots_file.read_text() == "of root\n"


@as_root
async def test_a_task_is_open_to_its_user_again_and_closed_to_others(host: RootHost) -> None:
    row = host.link.add("sleep", "60", os_user="person")
    await host.link.until(row, "running")
    pid = (await host.keeper()).tasks[0].pid

    def reads() -> bool:
        return b"XCE_JOB_ID" in Path(f"/proc/{pid}/environ").read_bytes()

    assert become(reads)
    with pytest.raises(PermissionError):
        become(reads, uid=UID + 1)


@as_root
async def test_nobody_replaces_a_run_folder(host: RootHost) -> None:
    row = await host.ended("sh", "-c", "mv ../1 ../moved; rmdir ../1; ln -s /root ../2")
    assert row.end["exit_code"] != 0
    assert [path.name for path in host.folder.parent.iterdir()] == ["1"]


@as_root
@pytest.mark.parametrize("kind", ["link", "file", "of root", "of another"])
async def test_a_run_folder_that_is_not_the_users_own_is_refused(
    host: RootHost, tmp_path: Path, kind: str
) -> None:
    """Another attempt ran as another user, or something else took the name."""
    target = tmp_path / "target"
    target.mkdir()
    owned(target)
    host.folder.parent.mkdir(mode=0o711)
    if kind == "link":
        host.folder.symlink_to(target)
        owned(host.folder)
    elif kind == "file":
        host.folder.touch()
        owned(host.folder)
    else:
        host.folder.mkdir(mode=0o755)
        owned(host.folder, uid=0 if kind == "of root" else UID + 1)
    row = await host.ended("touch", "x")
    assert row.events == ["gone"]
    assert row.end["reason"].startswith("run folder: ")
    assert not list(target.iterdir())


@as_root
async def test_the_next_attempt_of_the_same_user_finds_its_folder(host: RootHost) -> None:
    await host.ended("sh", "-c", "echo kept > file")
    again = await host.ended("cat", "file", key=Key(1, 2, 0))
    assert again.end["exit_code"] == 0
    assert host.output("1.2.0.out") == "kept\n"


@as_root
def test_a_worker_without_root_is_itself_alone(tmp_path: Path, person: None) -> None:
    let_anyone_in(tmp_path)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    owned(run_dir)

    def prepare(job: int, **members: object) -> tuple[bool, int]:
        launcher = Launcher(run_dir, as_starter=False, api_url=None)
        run_as = launcher.prepare(Key(job, 1, 0), launch(**members)).run_as
        return run_as.is_other, run_as.uid

    for job, other in enumerate(("root", "nobody", "ann"), 1):
        with pytest.raises(LaunchRefused, match="os_user_refused"):
            become(lambda job=job, other=other: prepare(job, os_user=other))
    # Its own user has no name here; the number stands for it.
    assert become(lambda: prepare(4, os_user=str(UID))) == (False, UID)


@as_root
def test_a_worker_without_root_takes_one_owner_that_is_mapped_to_nobody(tmp_path: Path) -> None:
    let_anyone_in(tmp_path)
    run_dir = owned(tmp_path)

    def prepare(job: int, owner: str) -> int:
        launcher = Launcher(run_dir, as_starter=False, api_url=None)
        return launcher.prepare(Key(job, 1, 0), launch(owner=owner)).run_as.uid

    assert become(lambda: prepare(1, "ann")) == UID
    with pytest.raises(LaunchRefused, match=r"os_user_refused: .* another owner"):
        become(lambda: prepare(2, "bob"))
    # Also after a restart: each call above was another process.
    assert become(lambda: prepare(3, "ann")) == UID
    assert not (run_dir / "jobs" / "2").exists()
