"""Two controllers: one decides, and when it dies the other does."""

import os
import signal
import time

import psycopg
import pytest

from app.wire.jobs import JobSubmit
from tests.system.processes import Up, eventually, up

pytestmark = pytest.mark.timeout(90)
LEASE_S = 3


def leader(cluster: Up) -> tuple[int | None, int]:
    """Process id and epoch of who holds the lease; none between two."""
    with psycopg.connect(cluster.told["database_url"]) as conn:
        row = conn.execute(
            "select split_part(l.holder, ':', 2)::int, f.epoch from xce.lease l, xce.fence f"
        ).fetchone()
    assert row is not None
    return row[0], row[1]


def settled_leader(cluster: Up) -> tuple[int, int]:
    """The same, once somebody holds it: the API answers a little before that."""
    eventually(lambda: leader(cluster)[0] is not None, "a leader")
    pid, epoch = leader(cluster)
    assert pid is not None
    return pid, epoch


def test_a_killed_leader_is_followed_within_two_leases() -> None:
    options = ("--workers", "2", "--cpus", "2", "--controllers", "2")
    with up(*options, "--set", f"lease_s={LEASE_S}") as cluster:
        client = cluster.client()
        job = client.submit(JobSubmit(command=["sleep", "600"], min_tasks=1, max_tasks=4))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        pid, epoch = settled_leader(cluster)
        controllers = cluster.state["pids"]["controllers"]
        follower = cluster.client(api=cluster.told["apis"][1 - controllers.index(pid)])

        os.kill(pid, signal.SIGKILL)
        killed_s = time.monotonic()
        grown = follower.grow(job.id, 2)
        eventually(
            lambda: follower.request(grown.id).state == "running",
            "a grow decided by the successor",
            within_s=2 * LEASE_S,
        )
        assert time.monotonic() - killed_s < 2 * LEASE_S
        assert leader(cluster)[1] > epoch
        assert [task.state for task in follower.tasks(job.id)] == ["running"] * 3
        cluster.check()


def test_a_leader_that_stops_in_good_order_is_followed_at_once() -> None:
    options = ("--workers", "1", "--cpus", "2", "--controllers", "2", "--set", "lease_s=20")
    with up(*options) as cluster:
        pid, epoch = settled_leader(cluster)
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: leader(cluster)[1] > epoch, "a new epoch", within_s=10)
