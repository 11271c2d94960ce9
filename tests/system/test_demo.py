"""`xce demo`: the whole story in well under a minute, and nothing left of it."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.system.processes import XCE, processes_with, run

pytestmark = pytest.mark.timeout(120)


def test_the_demo_tells_its_story_to_the_end(tmp_path: Path) -> None:
    started_s = time.monotonic()
    demo = run("demo", TMPDIR=str(tmp_path))
    assert demo.returncode == 0, demo.stderr
    assert time.monotonic() - started_s < 60
    result = json.loads(demo.stdout.splitlines()[-1])
    assert set(result) == {"sizes", "requests", "files_done", "task_seconds", "cpu_seconds"}
    assert result["sizes"][0] == 2
    assert 5 in result["sizes"]
    assert result["sizes"][-1] == 0
    assert [(request["kind"], request["state"]) for request in result["requests"]] == [
        ("grow", "running"),
        ("shrink", "released"),
        ("grow", "cancelled"),
    ]
    assert result["files_done"] >= 100
    assert result["task_seconds"] > 10
    assert result["cpu_seconds"] == result["task_seconds"]
    assert not processes_with(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_an_interrupted_demo_exits_130_and_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*XCE, "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stderr is not None
        assert any("five fit" in line for line in iter(demo.stderr.readline, ""))
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=30)
        assert demo.returncode == 130
    assert not processes_with(str(tmp_path))
    assert not list(tmp_path.iterdir())
