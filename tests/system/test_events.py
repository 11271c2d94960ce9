"""Events of a real cluster: a reader sees each once, whatever dies meanwhile."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.wire.encoding import decode
from app.wire.events import Event
from app.wire.jobs import JobSubmit
from app.wire.resizes import ShrinkAsk
from tests.system.processes import Up, eventually, up

pytestmark = pytest.mark.timeout(90)

JOB = JobSubmit(command=["sleep", "600"], min_tasks=1, max_tasks=3)
FOLLOW = ("-m", "app.cli.main", "events", "--follow", "-o", "json")


@contextmanager
def following(cluster: Up) -> Iterator[list[Event]]:
    """What `xcecli events --follow` has printed."""
    place = {
        "XCE_API_URL": cluster.told["api"],
        "XCE_TOKEN_FILE": cluster.told["owner_token_file"],
    }
    process = subprocess.Popen(
        [sys.executable, *FOLLOW],
        env=os.environ | place,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    told = process.stdout
    assert told is not None
    seen: list[Event] = []
    reader = threading.Thread(target=lambda: seen.extend(decode(line, Event) for line in told))
    reader.start()
    try:
        yield seen
    finally:
        process.kill()
        process.wait()
        reader.join()
        told.close()


def test_a_follower_sees_each_event_once_though_its_controller_is_killed() -> None:
    with up("--workers", "1", "--cpus", "4") as cluster, following(cluster) as seen:
        client = cluster.client()
        job = client.submit(JOB)
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        eventually(lambda: len(seen) >= 5, "its events")
        [controller] = cluster.state["pids"]["controllers"]
        os.kill(controller, signal.SIGKILL)
        eventually(lambda: cluster.state["pids"]["controllers"] != [controller], "another")
        grown = client.wait(client.grow(job.id, 2).id, timeout_s=20)
        assert grown.state == "running"
        shrink = client.wait(client.shrink(job.id, ShrinkAsk(count=1)).id, timeout_s=20)
        assert shrink.state == "released"
        everything = list(client.events())
        assert {event.kind for event in everything} == {"job", "start", "grow", "shrink", "task"}
        eventually(lambda: len(seen) >= len(everything), "all events")
        assert seen == everything
        # The stream is open; a stop does not wait for it.
        assert cluster.stop() < 10
