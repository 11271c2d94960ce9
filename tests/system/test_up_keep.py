"""`xce up --keep-tasks`: the tasks outlive the cluster, and the next start takes them up again."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.daemons.keeper_watch import KeeperWatch
from app.wire.jobs import JobSubmit
from tests.system.processes import Up, eventually, is_alive, processes_with, run, up

pytestmark = pytest.mark.timeout(90)


def fence_s(cluster: Up) -> float:
    [setting] = [s for s in cluster.client(is_operator=True).settings() if s.name == "fence_s"]
    return float(setting.value)


@pytest.fixture
def watches(data: Path) -> Iterator[list[KeeperWatch]]:
    """Of the hosts h1 and h2."""
    made = [KeeperWatch(data / "hosts" / name) for name in ("h1", "h2")]
    yield made
    for watch in made:
        watch.close()


def test_tasks_are_kept_and_their_ends_are_known_to_the_next_start(
    data: Path, watches: list[KeeperWatch]
) -> None:
    options = ("--data", str(data), "--workers", "2", "--cpus", "2", "--keep-tasks")
    waiter = ["sh", "-c", f"while [ ! -e {data}/go ]; do sleep 0.05; done; exit 7"]
    with up(*options, "--keep-s", "1000") as cluster:
        client = cluster.client()
        stays = client.submit(JobSubmit(command=["sleep", "600"], tasks=2, max_tasks=3))
        ends = client.submit(JobSubmit(command=waiter))
        eventually(
            lambda: client.job(stays.id).running_tasks + client.job(ends.id).running_tasks == 3,
            "three running tasks",
        )
        keepers = cluster.state["pids"]["keepers"]
        daemons = [pid for pid in cluster.pids if pid not in keepers]
        assert cluster.stop() < 15
        assert not [pid for pid in daemons if is_alive(pid)]
        assert all(is_alive(pid) for pid in keepers)
    assert all(watch.fence_s() > 999 for watch in watches)
    before = sorted(task["pid"] for watch in watches for task in watch.tasks())
    (data / "go").touch()
    eventually(
        lambda: [t["state"] for w in watches for t in w.tasks()].count("exited") == 1,
        "an end that no worker sees",
    )
    with up(*options) as cluster:
        client = cluster.client()
        assert cluster.state["pids"]["keepers"] == keepers
        eventually(lambda: client.job(ends.id).exit_code == 7, "the exit code")
        assert client.job(stays.id).running_tasks == 2
        after = [t["pid"] for w in watches for t in w.tasks() if t["state"] == "running"]
        assert set(after) < set(before)
        assert fence_s(cluster) == 300
        eventually(lambda: all(watch.fence_s() < 301 for watch in watches), "the fence of before")
        grown = client.grow(stays.id, 1)
        eventually(lambda: client.request(grown.id).state == "running", "a grow as before")
        cluster.check()
        cluster.stop()
        assert watches[0].fence_s() > 86_399
    # Without the option it ends everything, what was kept too.
    with up(*options[:-1]) as cluster:
        assert cluster.client().job(stays.id).running_tasks == 3
        assert fence_s(cluster) == 300
        assert cluster.stop() < 15
    assert not processes_with(str(data))


def test_a_host_that_does_not_confirm_the_longer_fence_is_named(data: Path) -> None:
    options = ("--data", str(data), "--workers", "1", "--keep-tasks")
    with up(*options) as cluster:
        client = cluster.client()
        job = client.submit(JobSubmit(command=["sleep", "600"]))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        os.kill(cluster.state["pids"]["workers"][0], signal.SIGSTOP)
        assert cluster.process.stderr is not None
        assert cluster.stop() < 15
        assert "h1 did not confirm" in cluster.process.stderr.read()


@pytest.mark.parametrize(
    "options",
    [("--keep-tasks",), ("--data", "here", "--keep-s", "5"), ("--keep-tasks", "--keep-s", "-1")],
)
def test_what_makes_no_sense_is_a_usage_error(options: tuple[str, ...]) -> None:
    refused = run("up", "--json", *options)
    assert refused.returncode == 2
    assert "--keep" in refused.stderr
