"""The worker's process over a real database: killed, cut off, and started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.db.worker_link import WorkerLink
from tests.support.cluster import Database
from tests.support.story import Story
from tests.support.worker import add_host, login_url
from tests.worker.conftest import is_alive, shut_down

LIMIT_S = 15.0


class Site:
    """One host of a real database, its worker a process of its own."""

    def __init__(self, database: Database, story: Story, run_dir: Path) -> None:
        self.database = database
        self.story = story
        self.run_dir = run_dir
        self.worker: subprocess.Popen[bytes] | None = None

    def start_worker(self) -> None:
        environment = {**os.environ, "XCE_DATABASE_URL": login_url(self.database, "h1")}
        command = [sys.executable, "-m", "app.admin.main", "worker", "--as-starter"]
        with (self.run_dir.parent / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(
                [*command, "--run-dir", str(self.run_dir)], env=environment, stderr=log
            )
        self.until(lambda: self.story.one("select state from xce.host") == "up")

    def end_worker(self, number: int) -> int:
        assert self.worker is not None
        self.worker.send_signal(number)
        return self.worker.wait(LIMIT_S)

    def place(self, *command: str, tasks: int = 1, **members: Any) -> int:
        """A job whose start is committed on the host, and the bell."""
        job = self.story.submit(tasks, command=list(command), **members)
        self.story.place(self.story.start_of(job), {"h1": tasks})
        self.ring()
        return job

    def ring(self) -> None:
        channel = f"xce_host_{self.story.hosts['h1']}"
        self.story.one("select pg_notify(%s, '')", channel)

    def task(self, job: int, index: int = 0) -> dict[str, Any]:
        query = "select * from xce.task where job_id = %s and index = %s"
        return self.story.rows(query, job, index)[0]

    def until(self, is_so: Callable[[], object]) -> None:
        """Ask the database again and again: no bell tells a test what a worker has reported."""
        give_up_at_s = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < give_up_at_s, self.log()
            time.sleep(0.01)

    def until_state(self, job: int, state: str, index: int = 0) -> dict[str, Any]:
        self.until(lambda: self.task(job, index)["state"] == state)
        return self.task(job, index)

    def pid_of(self, job: int) -> int:
        return int((self.run_dir / "jobs" / str(job) / "pid").read_text())

    def log(self) -> str:
        return (self.run_dir.parent / "worker.log").read_text()


@pytest.fixture
async def site(database: Database, tmp_path: Path) -> AsyncIterator[Site]:
    add_host(database, "h1")
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o711)
    with database.connect() as conn:
        story = Story(conn)
        story.hosts["h1"] = story.one("select id from xce.host")
        made = Site(database, story, run_dir)
        made.start_worker()
        yield made
        made.end_worker(signal.SIGKILL)
        await shut_down(run_dir)


SLEEP = ("sh", "-c", "echo $$ > pid; exec sleep 1000")


async def test_a_jobs_task_runs_and_its_exit_code_reaches_the_database(site: Site) -> None:
    job = site.place("sh", "-c", "exit 7")
    task = site.until_state(job, "ended")
    assert (task["how"], task["exit_code"], task["outcome"]) == ("exited", 7, "came_up")
    assert site.story.job(job)["state"] == "exited"
    assert site.story.events("task", task["id"]) == ["assign", "start", "up", "gone"]


async def test_term_ends_the_worker_at_once_and_leaves_its_tasks(site: Site) -> None:
    job = site.place(*SLEEP)
    site.until_state(job, "running")
    assert site.end_worker(signal.SIGTERM) == 0
    assert is_alive(site.pid_of(job))


async def test_a_killed_worker_leaves_its_tasks_and_the_next_adopts_them(site: Site) -> None:
    job = site.place(*SLEEP)
    task = site.until_state(job, "running")
    site.end_worker(signal.SIGKILL)
    assert is_alive(site.pid_of(job))
    site.start_worker()
    site.story.kill(job)
    site.ring()
    site.until_state(job, "ended")
    assert site.story.events("task", task["id"]) == ["assign", "start", "up", "stop", "gone"]
    assert not is_alive(site.pid_of(job))


async def test_a_task_that_ended_without_a_worker_is_reported_truly(site: Site) -> None:
    go = site.run_dir / "go"
    job = site.place("sh", "-c", f"until test -e {go}; do sleep 0.01; done; exit 42")
    site.until_state(job, "running")
    site.end_worker(signal.SIGKILL)
    go.touch()
    site.start_worker()
    assert site.until_state(job, "ended")["exit_code"] == 42


async def test_connections_that_break_cost_nothing_but_time(site: Site) -> None:
    job = site.place("sh", "-c", "until test -e go; do sleep 0.01; done; exit 3", tasks=3)
    for index in range(3):
        site.until_state(job, "running", index)
    login = psycopg.conninfo.conninfo_to_dict(login_url(site.database, "h1"))["user"]
    site.story.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", login
    )
    (site.run_dir / "jobs" / str(job) / "go").touch()
    for index in range(3):
        task = site.until_state(job, "ended", index)
        assert task["exit_code"] == 3
        assert site.story.events("task", task["id"]) == ["assign", "start", "up", "gone"]


async def test_a_second_worker_on_the_same_folder_is_refused(site: Site) -> None:
    environment = {**os.environ, "XCE_DATABASE_URL": login_url(site.database, "h1")}
    command = [sys.executable, "-m", "app.admin.main", "worker", "--run-dir", str(site.run_dir)]
    second = subprocess.run(
        command, env=environment, capture_output=True, check=False, timeout=LIMIT_S
    )
    assert second.returncode == 1
    assert b"another worker serves" in second.stderr


async def test_a_link_without_a_database_is_a_lost_connection() -> None:
    link = WorkerLink("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(ConnectionError):
        await link.fetch(1, is_clear=False, fence_s=None, is_full=True)
    await link.close()


async def test_a_login_that_is_no_hosts_is_a_lost_connection(database: Database) -> None:
    link = WorkerLink(database.url)
    with pytest.raises(ConnectionError, match="no host has the login"):
        await link.register("boot", "0", b"[]", folder="folder")
    await link.close()
