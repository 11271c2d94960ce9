"""The leader against callers, operators and its successor (PROTOCOL 15, 18, 31)."""

from typing import Any

import pytest

from tests.support.interleave import Two
from tests.support.story import Story

LATER = "clock_timestamp() + interval '2 minutes'"


def pending_grow(two: Two, **members: Any) -> int:
    job = two.told.running_job({"h1": 1}, max_tasks=3, start_s=600)
    return two.told.grow(job, 1, **members)


def placed_grow(two: Two, **members: Any) -> int:
    grow = pending_grow(two, **members)
    two.told.place(grow, {"h2": 1}, commit=False)
    return grow


def giving(two: Two, grow: int, is_placed: bool) -> dict[str, Any]:
    return two.told.deciding("commit", grow) if is_placed else two.told.placing(grow, {"h2": 1})


def sweep(query: str) -> Any:
    return lambda story: story.one(query, story.epoch)


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_cancel_before_the_commit_wins(two: Two, is_placed: bool) -> None:
    grow = placed_grow(two) if is_placed else pending_grow(two)
    decision = giving(two, grow, is_placed)
    answers = two.race(lambda s: s.cancel(grow), lambda s: s.apply(decision))
    assert answers == (grow, ["version"])
    assert two.told.request(grow)["state"] == "cancelled"
    assert two.told.free("h2") == 4


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_cancel_after_the_commit_comes_too_late(two: Two, is_placed: bool) -> None:
    grow = placed_grow(two) if is_placed else pending_grow(two)
    decision = giving(two, grow, is_placed)
    answers = two.race(lambda s: s.apply(decision), lambda s: s.cancel(grow))
    assert answers == ([None], "too_late")
    assert two.told.request(grow)["state"] == "committed"


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_deadline_before_the_commit_wins(two: Two, is_placed: bool) -> None:
    grow = (placed_grow if is_placed else pending_grow)(two, deadline_s=60)
    decision = giving(two, grow, is_placed)
    _, refused = two.race(
        sweep(f"select xce.sweep_deadlines(%s, {LATER})"), lambda s: s.apply(decision)
    )
    assert refused == ["version"]
    assert two.told.request(grow)["reason"] == "deadline"


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_deadline_never_ends_what_is_committed(two: Two, is_placed: bool) -> None:
    grow = (placed_grow if is_placed else pending_grow)(two, deadline_s=60)
    decision = giving(two, grow, is_placed)
    answers = two.race(
        lambda s: s.apply(decision), sweep(f"select xce.sweep_deadlines(%s, {LATER})")
    )
    assert answers[0] == [None]
    assert two.told.request(grow)["state"] == "committed"


def test_a_commit_that_waited_past_the_deadline_is_refused(two: Two) -> None:
    grow = pending_grow(two, deadline_s=0.05)
    job = two.told.request(grow)["job_id"]
    decision = giving(two, grow, is_placed=False)

    def hold_until_it_passed(story: Story) -> None:
        story.one("select 1 from xce.job where id = %s for no key update", job)
        while not story.one(
            "select clock_timestamp() > deadline_at from xce.resize_request where id = %s", grow
        ):
            pass

    # The clock is read after the locks, or this would be judged by when it began to wait.
    _, refused = two.race(hold_until_it_passed, lambda s: s.apply(decision))
    assert refused == ["deadline"]


@pytest.mark.parametrize("is_placed", [False, True])
def test_nothing_is_given_on_a_host_that_is_drained_meanwhile(two: Two, is_placed: bool) -> None:
    grow = placed_grow(two) if is_placed else pending_grow(two)
    decision = giving(two, grow, is_placed)
    _, refused = two.race(lambda s: s.wish("h2", "drain"), lambda s: s.apply(decision))
    assert refused == ["host"]
    if is_placed:
        assert two.told.apply(two.told.deciding("unplace", grow, reason="h2 drains")) == [None]
    assert two.told.request(grow)["state"] == "pending"
    assert two.told.one("select state from xce.host where name = 'h2'") in {"down", "draining"}


@pytest.mark.parametrize("is_placed", [False, True])
def test_what_was_given_before_a_drain_still_starts(two: Two, is_placed: bool) -> None:
    grow = placed_grow(two) if is_placed else pending_grow(two)
    decision = giving(two, grow, is_placed)
    answers = two.race(lambda s: s.apply(decision), lambda s: s.wish("h2", "drain"))
    assert answers[0] == [None]
    assert two.told.one("select state from xce.host where name = 'h2'") == "draining"
    assert [task["state"] for task in two.told.fetch("h2")] == ["starting"]


def test_nothing_is_committed_on_a_host_that_is_lost_meanwhile(two: Two) -> None:
    grow = placed_grow(two)
    decision = giving(two, grow, is_placed=True)
    silence(two, "h2")
    _, refused = two.race(sweep("select xce.sweep_silence(%s)"), lambda s: s.apply(decision))
    assert refused == ["host"]
    assert two.told.request(grow)["state"] == "placed"


def test_a_new_reign_waits_for_what_the_old_one_writes(two: Two) -> None:
    grow = pending_grow(two)
    decision = giving(two, grow, is_placed=False)
    two.told.conn.execute("update xce.lease set expires_at = '-infinity'")
    old = two.told.epoch
    given, new = two.race(
        lambda s: s.apply(decision), lambda s: s.one("select epoch from xce.take_lease('next')")
    )
    assert (given, new) == ([None], old + 1)


def test_an_old_reign_writes_nothing_under_a_new_one(two: Two) -> None:
    grow = pending_grow(two)
    decision = giving(two, grow, is_placed=False)
    two.told.conn.execute("update xce.lease set expires_at = '-infinity'")
    _, late = two.race(
        lambda s: s.one("select epoch from xce.take_lease('next')"), lambda s: s.apply(decision)
    )
    assert late == "RZ410"
    assert two.told.request(grow)["state"] == "pending"


def test_of_two_controllers_one_takes_the_lease(two: Two) -> None:
    two.told.conn.execute("update xce.lease set expires_at = '-infinity'")
    take = "select is_leader from xce.take_lease(%s)"
    assert two.race(lambda s: s.one(take, "one"), lambda s: s.one(take, "two")) == (True, False)


def silence(two: Two, host: str) -> None:
    two.told.conn.execute(
        "update xce.heartbeat set last_seen_at = last_seen_at - interval '1 hour'"
        " where host_id = %s",
        (two.told.hosts[host],),
    )
