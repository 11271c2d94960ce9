"""`xce up` ends with 0 and leaves nothing, whenever it is asked to."""

import os
import signal
import time
from pathlib import Path

import pytest

from app.wire.jobs import JobSubmit
from tests.system.processes import Starting, eventually, processes_with, up

pytestmark = pytest.mark.timeout(90)


def ends_well(starting: Starting, folder: Path, number: signal.Signals = signal.SIGTERM) -> None:
    started_s = time.monotonic()
    assert starting.end(number) == 0
    assert time.monotonic() - started_s < 15
    assert not processes_with(str(folder))
    assert not list(folder.iterdir())


def test_a_signal_while_the_database_is_made(tmp_path: Path) -> None:
    starting = Starting("--workers", "1", TMPDIR=str(tmp_path))
    eventually(lambda: list(tmp_path.glob("*/postgres/data.tmp")), "an initdb at work")
    ends_well(starting, tmp_path)


def test_a_signal_while_the_server_starts(tmp_path: Path) -> None:
    starting = Starting("--workers", "1", TMPDIR=str(tmp_path))
    eventually(lambda: list(tmp_path.glob("*/postgres/data/postmaster.pid")), "a server")
    ends_well(starting, tmp_path)


@pytest.mark.parametrize("words", ["PostgreSQL runs", "the API at"])
def test_a_signal_later_in_the_start(tmp_path: Path, words: str) -> None:
    starting = Starting("--workers", "2", TMPDIR=str(tmp_path))
    starting.wait_for(words)
    ends_well(starting, tmp_path, signal.SIGINT)


def test_more_signals_change_nothing(data: Path) -> None:
    with up("--data", str(data), "--workers", "1") as cluster:
        client = cluster.client()
        job = client.submit(JobSubmit(command=["sleep", "600"]))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        cluster.process.send_signal(signal.SIGINT)
        while cluster.process.poll() is None:
            cluster.process.send_signal(signal.SIGINT)
            cluster.process.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        assert cluster.process.returncode == 0
    assert not processes_with(str(data))
    with up("--data", str(data), "--workers", "1") as cluster:
        ended = cluster.client().job(job.id)
        assert (ended.state, ended.reason) == ("exited", "shutdown")
        cluster.check()


def test_a_server_that_hangs_holds_nobody_up(data: Path) -> None:
    options = ("--data", str(data), "--workers", "1")
    with up(*options) as cluster:
        client = cluster.client()
        job = client.submit(JobSubmit(command=["sleep", "600"]))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        os.kill(cluster.state["pids"]["postgres"], signal.SIGSTOP)
        assert cluster.stop() < 15
    assert not processes_with(str(data))
    with up(*options) as cluster:
        client = cluster.client()
        eventually(lambda: client.job(job.id).state == "exited", "the job's end")
        cluster.check()


def test_a_signal_on_the_way_to_adoption_ends_what_the_killed_one_left(data: Path) -> None:
    options = ("--data", str(data), "--workers", "1")
    with up(*options) as cluster:
        client = cluster.client()
        job = client.submit(JobSubmit(command=["sleep", "600"]))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        cluster.kill()
    starting = Starting(*options)
    starting.wait_for("PostgreSQL runs")
    assert starting.end(signal.SIGTERM) == 0
    assert not processes_with(str(data))
    with up(*options) as cluster:
        client = cluster.client()
        eventually(lambda: client.job(job.id).state == "exited", "the job's end")
        cluster.check()
