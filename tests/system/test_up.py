"""`xce up`: it comes up whole, stays whole, and leaves nothing."""

import os
import signal
import stat
from pathlib import Path

import pytest

from app.daemons.probe import is_ready
from app.wire.jobs import JobSubmit
from tests.system.processes import eventually, is_alive, is_listening, processes_with, run, up

pytestmark = pytest.mark.timeout(90)


def sleeper(**members: object) -> JobSubmit:
    return JobSubmit(command=["sleep", "600"], **members)  # type: ignore[arg-type]


def test_up_tells_where_everything_is_and_leaves_nothing_behind() -> None:
    with up("--workers", "2", "--cpus", "2", "--controllers", "2") as cluster:
        told = cluster.told
        assert set(told) == {
            "api", "apis", "database_url", "token_file", "owner_token_file", "pids",
        }  # fmt: skip
        assert told["api"] == told["apis"][0]
        assert len(set(told["apis"])) == 2
        assert {
            name: len(told["pids"][name]) for name in ("controllers", "workers", "keepers")
        } == {
            "controllers": 2,
            "workers": 2,
            "keepers": 2,
        }
        assert told == cluster.state
        pids = cluster.pids
        assert all(is_alive(pid) for pid in pids)
        for name in ("token_file", "owner_token_file"):
            assert stat.S_IMODE(os.stat(told[name]).st_mode) == 0o600
        operator = cluster.client(is_operator=True)
        assert [(host.name, host.cpus) for host in operator.hosts(state="up")] == [
            ("h1", 2),
            ("h2", 2),
        ]
        client = cluster.client()
        job = client.submit(sleeper(tasks=3, grace_s=1))
        eventually(lambda: client.job(job.id).running_tasks == 3, "three running tasks")
        cluster.check()

        assert cluster.stop() < 15
        assert cluster.lines_after == ""
        assert not [pid for pid in pids if is_alive(pid)]
        assert not [api for api in told["apis"] if is_listening(api)]
        assert not cluster.folder.exists()
        assert not processes_with(str(cluster.folder))


def test_no_password_is_in_a_command_line_or_in_an_environment() -> None:
    with up("--workers", "1") as cluster:
        files = [*(cluster.folder / "passfiles").iterdir(), cluster.folder / "postgres/passfile"]
        for path in files:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert not processes_with(path.read_text().strip().rpartition(":")[2])


def test_a_folder_has_one_cluster_and_keeps_everything_between_runs(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with up("--data", data, "--workers", "1", "--cpus", "2") as cluster:
        second = run("up", "--data", data, "--port", "0", "--json")
        assert second.returncode == 1
        assert second.stdout == ""
        assert str(cluster.process.pid) in second.stderr
        client = cluster.client()
        ran = client.submit(sleeper(tasks=2))
        eventually(lambda: client.job(ran.id).state == "running", "a running job")
        waits = client.submit(sleeper())
        token = Path(cluster.told["owner_token_file"]).read_text()
        cluster.stop()
        assert not (tmp_path / "data/up.json").exists()

    with up("--data", data, "--workers", "1", "--cpus", "2") as cluster:
        assert Path(cluster.told["owner_token_file"]).read_text() == token
        client = cluster.client()
        ended = client.job(ran.id)
        assert (ended.state, ended.reason) == ("exited", "shutdown")
        eventually(lambda: client.job(waits.id).state == "running", "the job that waited runs")
        cluster.check()


def test_tasks_that_ignore_term_hold_nobody_up_and_their_end_is_recorded(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    stubborn = ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]
    with up("--data", data, "--workers", "1") as cluster:
        client = cluster.client()
        job = client.submit(JobSubmit(command=stubborn, grace_s=60))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        assert cluster.stop() < 15
        assert not processes_with(data)
    with up("--data", data, "--workers", "1") as cluster:
        client = cluster.client()
        ended = client.job(job.id)
        assert (ended.state, ended.reason) == ("exited", "shutdown")
        [task] = client.tasks(job.id, is_all=True)
        assert (task.how, task.signal) == ("signalled", 9)


def test_a_killed_controller_and_a_killed_worker_are_started_again() -> None:
    with up("--workers", "1", "--cpus", "2") as cluster:
        client = cluster.client()
        job = client.submit(sleeper(min_tasks=1, max_tasks=2))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        before = cluster.state["pids"]
        for pid in (*before["controllers"], *before["workers"]):
            os.kill(pid, signal.SIGKILL)

        def replaced() -> bool:
            now = cluster.state["pids"]
            return all(
                now[name][0] not in (None, before[name][0]) for name in ("controllers", "workers")
            )

        eventually(replaced, "new processes")
        assert cluster.state["pids"]["keepers"] == before["keepers"]
        eventually(lambda: is_listening(cluster.told["api"]), "the API on its old port")
        grown = client.grow(job.id, 1)
        eventually(lambda: client.request(grown.id).state == "running", "a grow as before")
        assert [task.state for task in client.tasks(job.id)] == ["running", "running"]
        cluster.check()


def test_a_killed_postgres_is_started_again_and_no_task_notices() -> None:
    with up("--workers", "1", "--cpus", "2") as cluster:
        client = cluster.client()
        job = client.submit(sleeper(min_tasks=1, max_tasks=2))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        killed = cluster.state["pids"]["postgres"]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: cluster.state["pids"]["postgres"] != killed, "another server")
        eventually(lambda: is_ready(cluster.told["api"]), "an API that reaches it")
        grown = client.grow(job.id, 1)
        eventually(lambda: client.request(grown.id).state == "running", "a grow as before")
        assert [task.started_at is not None for task in client.tasks(job.id)] == [True, True]
        cluster.check()


@pytest.mark.parametrize("setting", ["heartbeat_s=20", "poll_s=nan"])
def test_settings_that_make_no_sense_are_refused(setting: str) -> None:
    refused = run("up", "--port", "0", "--workers", "0", "--json", "--set", setting)
    assert refused.returncode in (1, 2)
    assert refused.stdout == ""
    assert setting.partition("=")[0] in refused.stderr or "--set" in refused.stderr
