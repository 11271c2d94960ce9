"""R7: the doorbell makes it quick, the poll makes it certain."""

import time

import pytest

from app.client.client import Client
from app.wire.jobs import JobSubmit
from app.wire.resizes import Resize, ShrinkAsk
from tests.system.processes import eventually, up

pytestmark = pytest.mark.timeout(90)

#: The polls alone would take minutes.
RARE = ("poll_s=60", "worker_poll_s=60", "heartbeat_s=60", "silent_s=200")
OFTEN = ("poll_s=1", "worker_poll_s=1", "heartbeat_s=1")
JOB = JobSubmit(command=["sleep", "600"], min_tasks=1, max_tasks=3)


def settings(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def ended_s(client: Client, request: Resize, state: str, *, within_s: float) -> float:
    """How long after now the request reached its end."""
    started_s = time.monotonic()
    eventually(lambda: client.request(request.id).state == state, state, within_s=within_s)
    return time.monotonic() - started_s


def test_with_rare_polls_the_doorbell_alone_is_quick_enough() -> None:
    with up("--workers", "2", "--cpus", "2", *settings(*RARE)) as cluster:
        client = cluster.client()
        job = client.submit(JOB)
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task", within_s=5)
        for _ in range(3):
            assert ended_s(client, client.grow(job.id, 1), "running", within_s=1) < 1
            [*_, last] = client.tasks(job.id)
            shrink = client.shrink(job.id, ShrinkAsk(tasks=[last.index]))
            assert ended_s(client, shrink, "released", within_s=1) < 1
        cluster.check()


def test_with_every_notification_lost_the_polls_still_end_everything() -> None:
    swallowed = {"XCE_FAILPOINTS": "doorbell_swallowed"}
    with up("--workers", "2", "--cpus", "2", *settings(*OFTEN), **swallowed) as cluster:
        client = cluster.client()
        job = client.submit(JOB)
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task", within_s=5)
        # A scheduler's poll, a worker's, and as much again for two slow cores.
        ended_s(client, client.grow(job.id, 2), "running", within_s=4)
        shrink = client.shrink(job.id, ShrinkAsk(count=2))
        ended_s(client, shrink, "released", within_s=4)
        client.kill(job.id)
        eventually(lambda: client.job(job.id).state == "exited", "its end", within_s=4)
        cluster.check()
