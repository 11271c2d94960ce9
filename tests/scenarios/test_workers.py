"""Cases H09, H45 and H46 on real processes: every end is booked once, nothing is left behind."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from app.wire.resizes import ShrinkAsk
from tests.keeper.host import parent_of
from tests.scenarios.conftest import Live
from tests.system.processes import eventually, is_alive

pytestmark = pytest.mark.timeout(90)

#: Tells that TERM came, and leaves only when it is let go.
SLOW_TO_LEAVE = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
index = os.environ["XCE_TASK_INDEX"]
signal.signal(signal.SIGTERM, lambda *_: (folder / f"term.{index}").touch())
(folder / f"deaf.{index}").touch()
while not (folder / f"go.{index}").exists():
    time.sleep(0.02)
"""

#: Shell, wrapper, worker: the worker leaves the session, forks twice, is deaf and holds a port.
STRAY = """
import os, signal, socket, sys, time
if os.fork():
    time.sleep(600) if sys.argv[2] == "stays" else os.wait()
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
holder = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


def test_h09_a_task_that_ends_while_its_worker_is_away_is_booked_as_released(
    live: Live, tmp_path: Path
) -> None:
    command = (sys.executable, "-c", SLOW_TO_LEAVE, str(tmp_path))
    job = live.running(*command, min_tasks=1, max_tasks=3, span={"per_host": 1}, grace_s=20)
    live.grown(job, 2)
    host = live.hosts(job)[2]
    eventually((tmp_path / "deaf.2").exists, "the handler of the stop signal")
    shrink = live.client.shrink(job, ShrinkAsk(hosts=[host]))
    eventually((tmp_path / "term.2").exists, "the stop signal")
    worker = live.worker_of(host)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: not is_alive(worker), "the worker's death")
    (tmp_path / "go.2").touch()
    live.final(shrink, "released")
    for index in (0, 1):
        (tmp_path / f"go.{index}").touch()
    ended = live.ended(job)
    assert (ended.state, ended.exit_code) == ("done", 0)
    tasks = {task.index: task.how for task in live.client.tasks(job, is_all=True)}
    assert tasks == {0: "exited", 1: "exited", 2: "released"}
    told = [item for item in live.client.history(job) if item.task == 2 and item.target == "ended"]
    assert len(told) == 1


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("way", ["shrink", "kill", "exit"])
def test_h45_no_grandchild_outlives_its_task(live: Live, way: str) -> None:
    port = free_port()
    main = "leaves" if way == "exit" else "stays"
    wrapped = f'exec "{sys.executable}" -c "$XCE_STRAY" {port} {main}'
    command = f"if [ $XCE_TASK_INDEX = 1 ]; then {wrapped}; else exec sleep 600; fi"
    job = live.running(
        *("sh", "-c", command),
        **{"min_tasks": 1, "max_tasks": 2, "grace_s": 1, "env": {"XCE_STRAY": STRAY}},
    )
    grow = live.grow(job, 1)
    eventually(lambda: not is_free(port), "the port to be held")
    match way:
        case "shrink":
            live.final(live.client.shrink(job, ShrinkAsk(tasks=[1])), "released")
        case "kill":
            live.client.kill(job)
            live.ended(job)
        case "exit":
            live.final(grow, "running")
            eventually(lambda: live.states(job) == ["running"], "the end of the task")
    # The slot came back only after the last process had gone.
    assert is_free(port)
    assert len(live.processes_of(job)) == (0 if way == "kill" else 1)


def test_h46_a_worker_started_again_can_stop_what_it_started_before(live: Live) -> None:
    job = live.running("sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.05; done")
    (host,) = live.hosts(job).values()
    os.kill(live.worker_of(host), signal.SIGKILL)
    live.client.kill(job)
    ended = live.ended(job)
    assert (ended.state, ended.reason, ended.exit_code) == ("exited", "killed", 5)
    assert live.processes_of(job) == []


def test_h46_after_everything_on_a_host_died_its_task_is_booked_as_lost(live: Live) -> None:
    job = live.running("sleep", "600", max_tasks=2)
    (host,) = live.hosts(job).values()
    [main] = live.processes_of(job)
    doomed = [live.worker_of(host), live.keeper_of(host), parent_of(main), main]
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)
    ended = live.ended(job, within_s=20)
    [task] = live.client.tasks(job, is_all=True)
    assert (ended.state, task.how) == ("exited", "lost")
