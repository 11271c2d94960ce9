"""`xce up` and `xce demo` as a user without privileges."""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from app.db import binaries
from app.wire.jobs import JobSubmit
from tests.system.processes import Up, eventually, processes_with, up

NOBODY = 65534
ROOT = Path(__file__).parents[2]
IDENTITY: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else"),
    pytest.mark.skipif(not binaries.available(), reason="there are no PostgreSQL programs here"),
]


class Person(NamedTuple):
    """Who he is, and what he may run."""

    home: Path
    program: Sequence[str]
    environment: Mapping[str, str]


@pytest.fixture
def person() -> Iterator[Person]:
    """With a folder that he may write, on a path that he may walk."""
    with tempfile.TemporaryDirectory(prefix="xce-user-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        home = Path(folder)
        places = f"{ROOT}:{sysconfig.get_path('purelib')}"
        for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
            environment = {"HOME": folder, "TMPDIR": folder, "PYTHONPATH": places}
            found = Person(home, (python, "-m", "app.admin.main"), environment)
            if may_run(found):
                yield found
                return
        pytest.skip("that user may run no Python of this version")


def may_run(person: Person) -> bool:
    try:
        return run_as(person, "up", "--help").returncode == 0
    except PermissionError:
        return False


def run_as(person: Person, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*person.program, *arguments],
        cwd=person.home,
        env={**os.environ, **person.environment},
        capture_output=True,
        text=True,
        check=False,
        **IDENTITY,
    )


def test_a_user_runs_a_cluster_and_all_of_it_is_his(person: Person) -> None:
    data = person.home / "data"

    def his_up() -> AbstractContextManager[Up]:
        return up(
            *("--data", str(data), "--workers", "1", "--cpus", "3"),
            program=person.program,
            started=IDENTITY,
            **person.environment,
        )

    with his_up() as cluster:
        assert {psutil.Process(pid).uids().real for pid in cluster.pids} == {NOBODY}
        client = cluster.client()
        job = client.submit(JobSubmit(command=["sh", "-c", "id -u; sleep 600"], max_tasks=2))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        grown = client.grow(job.id, 1)
        eventually(lambda: client.request(grown.id).state == "running", "a grow")

        def said() -> list[str]:
            return [path.read_text() for path in data.glob(f"hosts/h1/**/{job.id}.*.out")]

        eventually(lambda: said() == [f"{NOBODY}\n"] * 2, "what both tasks say")
        cluster.check()
        cluster.kill()
    # What the kill left is his to adopt, and to end.
    with his_up() as cluster:
        assert cluster.client().job(job.id).running_tasks == 2
        cluster.check()
        assert cluster.stop() < 15
    assert not processes_with(str(person.home))


@pytest.mark.soak
def test_a_user_runs_the_demo(person: Person) -> None:
    demo = run_as(person, "demo")
    assert demo.returncode == 0, demo.stderr
    assert json.loads(demo.stdout.splitlines()[-1])["files_done"] >= 100
    assert not processes_with(str(person.home))
