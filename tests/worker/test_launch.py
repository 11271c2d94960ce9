"""Who a task runs as, and what a host keeps of jobs that ended."""

import os
import pwd
from pathlib import Path

import pytest

from app.worker import launch as launch_module
from app.worker.launch import Launcher, LaunchRefused, RunAs, expanded
from app.worker.reconcile import Key, Launch
from app.worker.sweep import stale_folders

KEY = Key(7, 2, 3)
DAY_S = 86_400.0


def launch(**more: object) -> Launch:
    members: dict[str, object] = {"command": ("true",), "env": {}, "host": "h1"}
    return Launch(**{**members, "cpus": 1, "mem_mib": 0, "gpus": 0, **more})  # type: ignore[arg-type]


def launcher(folder: Path, *, as_starter: bool = False, api_url: str | None = None) -> Launcher:
    return Launcher(folder, as_starter=as_starter, api_url=api_url)


as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root runs as others")


@as_root
@pytest.mark.parametrize("name", [None, "root", "daemon", "nobody", "no-such-user"])
def test_a_worker_of_root_refuses_the_systems_accounts_and_unknown_users(
    tmp_path: Path, name: str | None
) -> None:
    with pytest.raises(LaunchRefused, match=r"^os_user_refused: "):
        launcher(tmp_path).prepare(KEY, launch(os_user=name))
    assert not (tmp_path / "jobs").exists()


@as_root
def test_a_worker_of_root_runs_tasks_as_the_mapped_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = pwd.struct_passwd(("ann", "x", 4321, 4322, "", "/home/ann", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: ann)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 5000])
    prepared = launcher(tmp_path).prepare(KEY, launch(os_user="ann"))
    run_as = prepared.run_as
    assert (run_as.uid, run_as.gid, run_as.groups) == (4321, 4322, (4322, 5000))
    assert run_as.is_other
    assert (prepared.env["USER"], prepared.env["HOME"]) == ("ann", "/home/ann")
    folder = Path(prepared.cwd).stat()
    assert (folder.st_uid, folder.st_gid, folder.st_mode & 0o777) == (4321, 4322, 0o700)


def test_the_starters_worker_changes_no_user(tmp_path: Path) -> None:
    prepared = launcher(tmp_path, as_starter=True).prepare(KEY, launch())
    assert prepared.run_as.uid == os.getuid()
    assert not prepared.run_as.is_other


def test_a_task_gets_the_api_where_there_is_one_and_cannot_pretend_another_job(
    tmp_path: Path,
) -> None:
    env = {"XCE_JOB_ID": "1", "PATH": "/mine"}
    made = launcher(tmp_path, as_starter=True, api_url="http://127.0.0.1:1")
    prepared = made.prepare(KEY, launch(env=env))
    assert prepared.env["XCE_API_URL"] == "http://127.0.0.1:1"
    assert prepared.env["XCE_JOB_ID"] == "7"
    assert prepared.env["PATH"] == "/mine"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("%j.%a.%t.out", "7.2.3.out"), ("%%j-%h", "%j-h1"), ("%x%", "%x%"), ("plain", "plain")],
)
def test_a_pattern_knows_job_attempt_task_and_host(pattern: str, name: str) -> None:
    assert expanded(pattern, key=KEY, host="h1") == name


def test_only_folders_of_ended_jobs_that_nobody_wrote_to_for_long_are_stale(
    tmp_path: Path,
) -> None:
    now_s = 100 * DAY_S
    for name, age_days in [("1", 8), ("2", 8), ("3", 1), ("notes", 99)]:
        folder = tmp_path / name
        folder.mkdir()
        os.utime(folder, (now_s - age_days * DAY_S,) * 2)
    written = tmp_path / "4"
    written.mkdir()
    (written / "4.1.0.out").touch()
    os.utime(written / "4.1.0.out", (now_s,) * 2)
    os.utime(written, (0, 0))
    assert stale_folders(tmp_path, {2}, before_s=now_s - 7 * DAY_S) == [tmp_path / "1"]
    assert stale_folders(tmp_path / "none", set(), before_s=now_s) == []


def test_something_strange_among_the_folders_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "5").write_text("no folder")
    (tmp_path / "6").mkdir()
    os.utime(tmp_path / "5", (0, 0))
    os.utime(tmp_path / "6", (0, 0))
    assert stale_folders(tmp_path, set(), before_s=DAY_S) == [tmp_path / "6"]


@as_root
def test_a_folder_that_was_not_finished_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = pwd.struct_passwd(("ann", "x", 4321, 4322, "", "/home/ann", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: ann)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid])
    chown = os.chown

    def die(*_: object, **__: object) -> None:
        raise OSError("as if killed here")

    monkeypatch.setattr(os, "chown", die)
    with pytest.raises(LaunchRefused, match=r"^run folder: "):
        launcher(tmp_path).prepare(KEY, launch(os_user="ann"))
    assert not (tmp_path / "jobs" / "7").exists()
    monkeypatch.setattr(os, "chown", chown)
    prepared = launcher(tmp_path).prepare(KEY, launch(os_user="ann"))
    assert Path(prepared.cwd).stat().st_uid == 4321
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["7"]


def test_without_root_the_jobs_of_the_first_owner_run_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = RunAs("worker", "/home/worker", os.getuid() or 4321, os.getgid())
    monkeypatch.setattr(launch_module, "_own_user", lambda: own)
    launcher(tmp_path).prepare(KEY, launch(owner="ann"))
    # A worker that is started again still knows whose jobs it runs.
    again = launcher(tmp_path)
    again.prepare(Key(8, 1, 0), launch(owner="ann"))
    with pytest.raises(LaunchRefused, match=r"^os_user_refused: .* another owner"):
        again.prepare(KEY, launch(owner="bob"))
    again.prepare(Key(9, 1, 0), launch(owner="bob", os_user="worker"))
    launcher(tmp_path, as_starter=True).prepare(Key(10, 1, 0), launch(owner="bob"))


def test_a_task_gets_the_memory_it_asked_for_and_cpus_are_limited_where_told(
    tmp_path: Path,
) -> None:
    asked = launch(cpus=2, mem_mib=512)
    free = launcher(tmp_path, as_starter=True).prepare(KEY, asked)
    assert (free.cpus_max, free.mem_mib_max) == (0, 512)
    bound = Launcher(tmp_path, as_starter=True, api_url=None, limit_cpus=True)
    assert bound.prepare(KEY, asked).cpus_max == 2
