"""Cases H06 and H47: sizes asked for in quick succession leave one holding, the last one's."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.wire.resizes import Resize, ResizeAsk
from tests.scenarios.conftest import Live
from tests.system.processes import eventually

SEED = 20261206
OPEN = ("pending", "placed", "committed", "stopping")


def resizes_of(live: Live, job: int) -> list[Resize]:
    return list(live.client.requests(job))


def is_idle(live: Live, job: int) -> bool:
    return all(request.state not in OPEN for request in resizes_of(live, job))


def ask(live: Live, job: int, sizes: list[int]) -> list[tuple[int, int]]:
    """(request id, size) of each, asked for one after the other by a client of their own."""
    client = live.cluster.client()
    asked = [(client.resize(job, ResizeAsk(to=size)).id, size) for size in sizes]
    client.close()
    return asked


def rounds_of_sizes(live: Live, rounds: int) -> None:
    dice = random.Random(SEED)
    job = live.running("sleep", "600", tasks=2, min_tasks=1, max_tasks=8, grace_s=1)
    known = 0
    for number in range(rounds):
        sizes = [[dice.randint(1, 8) for _ in range(10)] for _ in range(3)]

        with ThreadPoolExecutor(3) as pool:
            asked_for = dict(
                pair for pairs in pool.map(lambda s: ask(live, job, s), sizes) for pair in pairs
            )
        eventually(lambda: is_idle(live, job), f"the end of round {number}", within_s=20)
        asked = resizes_of(live, job)[known:]
        known += len(asked)
        assert len(asked) == 30
        for request in asked:
            if request.reason is not None and "superseded" in request.reason:
                assert request.superseded_by is not None
                assert request.superseded_by > request.id
        last = asked_for[max(asked_for)]
        tasks = list(live.client.tasks(job))
        assert [task.state for task in tasks] == ["running"] * last, f"round {number}"
        assert sum(live.used().values()) == last


@pytest.mark.timeout(60)
def test_h06_the_last_of_many_sizes_holds(live: Live) -> None:
    rounds_of_sizes(live, 3)


@pytest.mark.soak
def test_h06_the_last_of_many_sizes_holds_a_hundred_times(live: Live) -> None:
    rounds_of_sizes(live, 100)


def test_h47_a_newer_smaller_size_withdraws_what_is_pending(live: Live) -> None:
    job = live.running("sleep", "600", tasks=1, min_tasks=1, max_tasks=6)
    filler = live.running("sleep", "600", tasks=8, min_tasks=8, max_tasks=8)
    four = live.client.resize(job, ResizeAsk(to=4))
    eventually(lambda: live.client.request(four.id).reason is not None, "why it waits")
    two = live.client.resize(job, ResizeAsk(to=2))
    superseded = live.client.request(four.id)
    assert (superseded.state, superseded.superseded_by) == ("cancelled", two.id)
    live.client.kill(filler)
    live.final(two, "running")
    assert live.states(job) == ["running"] * 2
    # Never more than two: no third task was ever made.
    assert len(list(live.client.tasks(job, is_all=True))) == 2
