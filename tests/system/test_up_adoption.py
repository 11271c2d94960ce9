"""`xce up` after its own death: the next one on the folder adopts what lives, and goes on."""

import os
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.client.client import Client
from app.daemons.keeper_watch import KeeperWatch
from app.wire.jobs import JobSubmit
from tests.system.processes import (
    Starting,
    Up,
    eventually,
    is_alive,
    processes_with,
    run,
    up,
)

pytestmark = pytest.mark.timeout(120)


def task_pids(data: Path) -> list[int]:
    """The processes of all tasks that the keepers of the folder have alive."""
    found = []
    for host in sorted(data.glob("hosts/*")):
        keeper = KeeperWatch(host)
        if keeper.pid is not None:
            found += [task["pid"] for task in keeper.tasks() if task["state"] == "running"]
        keeper.close()
    return sorted(found)


def running(client: Client, cluster: Up, **members: Any) -> int:
    """A job whose tasks run."""
    job = client.submit(JobSubmit(command=["sleep", "600"], **members))
    tasks = members.get("tasks", 1)
    eventually(lambda: client.job(job.id).running_tasks == tasks, "running tasks")
    return job.id


def ranges(cluster: Up, job_id: int) -> list[tuple[Any, ...]]:
    """When each task of the job was charged for."""
    with psycopg.connect(cluster.told["database_url"]) as conn:
        return conn.execute(
            "select task_index, attempt, during from xce.allocation where job_id = %s"
            " order by 1, 2",
            [job_id],
        ).fetchall()


def test_after_kill_9_the_next_start_adopts_everything_and_no_task_notices(data: Path) -> None:
    options = ("--data", str(data), "--workers", "2", "--cpus", "2")
    with up(*options) as cluster:
        client = cluster.client()
        job_id = running(client, cluster, tasks=3, max_tasks=4)
        before, tasks, charged = cluster.state, task_pids(data), ranges(cluster, job_id)
        assert len(tasks) == 3
        cluster.kill()
    with up(*options) as cluster:
        now = cluster.state
        assert now["apis"] == before["apis"]
        assert now["database_url"] == before["database_url"]
        assert now["pids"]["postgres"] == before["pids"]["postgres"]
        assert now["pids"]["keepers"] == before["pids"]["keepers"]
        gone = [*before["pids"]["controllers"], *before["pids"]["workers"]]
        assert not [pid for pid in gone if is_alive(pid)]
        assert all(is_alive(pid) for pid in cluster.pids)
        assert task_pids(data) == tasks
        assert ranges(cluster, job_id) == charged
        client = cluster.client()
        grown = client.grow(job_id, 1)
        eventually(lambda: client.request(grown.id).state == "running", "a grow as before")
        cluster.check()
        assert cluster.stop() < 15
    assert not processes_with(str(data))


def test_daemons_that_hang_are_ended_by_the_next_start(data: Path) -> None:
    options = ("--data", str(data), "--workers", "1")
    with up(*options) as cluster:
        client = cluster.client()
        running(client, cluster)
        tasks, pids = task_pids(data), cluster.state["pids"]
        hung = [*pids["controllers"], *pids["workers"]]
        for pid in hung:
            os.kill(pid, signal.SIGSTOP)
        cluster.kill()
        api = cluster.told["api"]
    # A port that was asked for is as good as one that was kept.
    with up(*options, "--port", api.rpartition(":")[2]) as cluster:
        assert not [pid for pid in hung if is_alive(pid)]
        assert task_pids(data) == tasks
        assert cluster.told["api"] == api
        cluster.check()


def test_kill_9_at_any_moment_of_the_first_start_leaves_a_folder_that_starts(data: Path) -> None:
    options = ("--data", str(data), "--workers", "1")
    starting = Starting(*options)
    eventually(lambda: list(data.glob("postgres/data.tmp")), "an initdb at work")
    starting.end(signal.SIGKILL)
    starting = Starting(*options)
    eventually((data / "postgres/data/postmaster.pid").exists, "a server that starts")
    starting.end(signal.SIGKILL)
    for words in ("PostgreSQL runs", "the database is ready", "the API at"):
        starting = Starting(*options)
        starting.wait_for(words)
        starting.end(signal.SIGKILL)
    with up(*options) as cluster:
        running(cluster.client(), cluster)
        cluster.check()
        cluster.stop()
    assert not processes_with(str(data))
    assert not list(data.glob("postgres/data.tmp"))


def test_kill_9_at_any_moment_of_a_later_start_or_stop_keeps_the_tasks_in_order(
    data: Path,
) -> None:
    options = ("--data", str(data), "--workers", "1")
    with up(*options) as cluster:
        job_id = running(cluster.client(), cluster)
        tasks = task_pids(data)
        cluster.kill()
    for words in ("PostgreSQL runs", "the API at"):
        starting = Starting(*options)
        starting.wait_for(words)
        starting.end(signal.SIGKILL)
        assert task_pids(data) == tasks
    # A start that fails does not end them either.
    failed = run("up", *options, "--port", "0", "--json", "--set", "no_such=1")
    assert failed.returncode == 1
    assert "left alone" in failed.stderr
    assert task_pids(data) == tasks
    with up(*options) as cluster:
        assert task_pids(data) == tasks
        cluster.check()
        cluster.process.terminate()
        eventually(lambda: task_pids(data) == [], "the end of the tasks")
        cluster.kill()
    with up(*options) as cluster:
        client = cluster.client()
        eventually(lambda: client.job(job_id).state == "exited", "the job's end")
        assert client.job(job_id).reason == "shutdown"
        running(client, cluster)
        cluster.check()


def test_hosts_missing_at_the_next_start_are_lost_and_more_are_added(data: Path) -> None:
    with up("--data", str(data), "--workers", "4", "--cpus", "1") as cluster:
        client = cluster.client()
        job_id = running(client, cluster, tasks=4, min_tasks=1, on_host_loss="shrink")
        cluster.kill()
    with up("--data", str(data), "--workers", "1", "--cpus", "1") as cluster:
        client, operator = cluster.client(), cluster.client(is_operator=True)
        states = {host.name: host.state for host in operator.hosts()}
        assert states == {"h1": "up", "h2": "lost", "h3": "lost", "h4": "lost"}
        assert len(task_pids(data)) == 1
        hows = sorted((task.host, task.how) for task in client.tasks(job_id, is_all=True))
        assert hows == [("h1", None), ("h2", "lost"), ("h3", "lost"), ("h4", "lost")]
        cluster.check()
    with up("--data", str(data), "--workers", "5", "--cpus", "3") as cluster:
        operator = cluster.client(is_operator=True)
        assert [(host.name, host.state, host.cpus) for host in operator.hosts()] == [
            *((f"h{i}", "up", 1) for i in range(1, 5)),
            ("h5", "up", 3),
        ]
        cluster.check()
        cluster.stop()
        assert cluster.process.stderr is not None
        assert "h1 keeps the 1 cpus" in cluster.process.stderr.read()
