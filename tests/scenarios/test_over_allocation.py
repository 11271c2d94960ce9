"""Cases H02, H07 and H12 on real processes: nothing is given twice, and the right tasks go."""

import os
import signal
import time

import pytest

from app.client.errors import Refused
from app.wire.resizes import ShrinkAsk
from tests.scenarios.conftest import DEAF, Live
from tests.system.processes import eventually, is_alive

pytestmark = pytest.mark.timeout(90)


def test_h02_tasks_that_are_still_stopping_count_toward_max(live: Live) -> None:
    job = live.running(*DEAF, tasks=3, min_tasks=1, max_tasks=3, grace_s=2)
    shrink = live.client.shrink(job, ShrinkAsk(count=2))
    grow = live.grow(job, 2)
    most = 0
    give_up_at_s = time.monotonic() + 30
    while live.client.request(grow.id).finished_at is None:
        most = max(most, len(live.processes_of(job)))
        assert all(used <= 3 for used in live.used().values())
        assert time.monotonic() < give_up_at_s
    assert most <= 3
    assert live.client.request(shrink.id).state == "released"
    assert live.client.request(grow.id).state == "running"
    assert len(live.processes_of(job)) == 3
    live.size(job, 3)


def test_h07_releasing_one_host_frees_that_host_and_no_other(live: Live) -> None:
    job = live.running(
        "sleep", "600", tasks=3, min_tasks=3, max_tasks=6, exclude_hosts=["h2", "h3"]
    )
    other = live.running("sleep", "600", tasks=3, hosts=["h3"])
    # The job may not go beyond h1 itself, so a sibling takes h2 whole and leaves it in two steps.
    sibling = live.running("sleep", "600", tasks=1, max_tasks=4, exclude_hosts=[], hosts=["h2"])
    live.grown(sibling, 2)
    live.final(live.client.shrink(sibling, ShrinkAsk(count=2)), "released")
    assert live.used() == {"h1": 3, "h2": 1, "h3": 3}
    on_h2 = live.running("sleep", "600", tasks=2, hosts=["h2"])
    on_h1 = live.submit("sleep", "600", hosts=["h1"])

    pid = live.cluster.state["pids"]["controllers"][0]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid), "the controller's death")
    eventually(lambda: live.cluster.state["pids"]["controllers"][0] != pid, "its successor")
    eventually(lambda: live.client.job(on_h1).reason is not None, "a reason to wait")
    assert live.client.job(on_h1).state == "pending"
    assert live.used() == {"h1": 3, "h2": 3, "h3": 3}

    live.client.kill(job)
    live.size(on_h1, 1)
    for running in (other, sibling, on_h2, on_h1):
        live.client.kill(running)
        live.ended(running)


def test_h12_a_shrink_by_count_takes_the_draining_host_first(live: Live) -> None:
    job = live.running("sleep", "600", tasks=2, min_tasks=2, max_tasks=4, span={"per_host": 2})
    (head_host,) = set(live.hosts(job).values())
    leaving = next(name for name in ("h1", "h2", "h3") if name != head_host)
    live.grown(job, 2, hosts=[leaving])
    assert live.hosts(job) == {0: head_host, 1: head_host, 2: leaving, 3: leaving}
    live.operator.drain(leaving)

    with pytest.raises(Refused) as refused:
        live.client.shrink(job, ShrinkAsk(tasks=[1, 9]))
    assert (refused.value.code, refused.value.figures["tasks"]) == ("unknown_task", [9])
    assert live.states(job) == ["running"] * 4

    shrink = live.final(live.client.shrink(job, ShrinkAsk(count=2)), "released")
    assert sorted(shrink.task_indices) == [2, 3]
    assert live.hosts(job) == {0: head_host, 1: head_host}
