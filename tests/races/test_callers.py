"""Two callers of one job, in both orders (PROTOCOL 8, 9, 14, 18, 22; idempotency keys)."""

import pytest

from tests.support.interleave import Two


def test_a_cancel_before_a_grow_makes_its_room(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    old = two.told.grow(job, 2)
    answers = two.race(lambda s: s.cancel(old), lambda s: s.grow(job, 2))
    assert answers == (old, old + 1)
    assert two.told.request(old)["state"] == "cancelled"
    assert two.told.request(old + 1)["state"] == "pending"


def test_a_cancel_after_a_grow_comes_too_late_for_it(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    old = two.told.grow(job, 2)
    answers = two.race(lambda s: s.grow(job, 2), lambda s: s.cancel(old))
    assert answers == ("above_max", old)
    assert two.told.request(old)["state"] == "cancelled"


def test_a_grow_after_a_shrink_may_count_on_it(two: Two) -> None:
    job = two.told.running_job({"h1": 3}, max_tasks=3)
    shrink, grow = two.race(lambda s: s.shrink(job, tasks=[2]), lambda s: s.grow(job, 1))
    assert two.told.request(shrink)["state"] == two.told.request(grow)["state"] == "pending"


def test_a_grow_before_a_shrink_may_not(two: Two) -> None:
    job = two.told.running_job({"h1": 3}, max_tasks=3)
    refused, shrink = two.race(lambda s: s.grow(job, 1), lambda s: s.shrink(job, tasks=[2]))
    assert refused == "above_max"
    assert two.told.request(shrink)["state"] == "pending"


@pytest.mark.parametrize(("first", "second"), [([1, 2], [2]), ([2], [1, 2])])
def test_a_task_is_named_by_the_first_of_two_shrinks(
    two: Two, first: list[int], second: list[int]
) -> None:
    job = two.told.running_job({"h1": 3}, max_tasks=3)
    shrink, refused = two.race(
        lambda s: s.shrink(job, tasks=first), lambda s: s.shrink(job, tasks=second)
    )
    assert refused == "task_leaving"
    assert two.told.request(shrink)["task_indices"] == first


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_two_shrinks_never_go_below_the_minimum_together(two: Two, first: int, second: int) -> None:
    job = two.told.running_job({"h1": 3}, min_tasks=2, max_tasks=3)
    shrink, refused = two.race(
        lambda s: s.shrink(job, tasks=[first]), lambda s: s.shrink(job, tasks=[second])
    )
    assert refused == "below_min"
    two.told.stop(shrink)
    assert two.told.tasks(job)[second] == "running"


def test_by_count_the_second_shrink_takes_other_tasks(two: Two) -> None:
    job = two.told.running_job({"h1": 3}, max_tasks=3)
    one, other = two.race(lambda s: s.shrink(job, count=1), lambda s: s.shrink(job, count=1))
    assert two.told.request(one)["task_indices"] == [2]
    assert two.told.request(other)["task_indices"] == [1]


def test_a_grow_after_a_kill_is_refused(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    assert two.race(lambda s: s.kill(job), lambda s: s.grow(job, 1)) == (job, "job_ended")


def test_a_grow_before_a_kill_ends_with_the_job(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    grow, _ = two.race(lambda s: s.grow(job, 1), lambda s: s.kill(job))
    assert two.told.request(grow)["state"] == "cancelled"
    assert two.told.request(grow)["reason"] == "job_ended"
    assert two.told.job(job)["state"] == "stopping"


def test_a_shrink_after_a_kill_is_refused(two: Two) -> None:
    job = two.told.running_job({"h1": 2}, max_tasks=3)
    answers = two.race(lambda s: s.kill(job), lambda s: s.shrink(job, tasks=[1]))
    assert answers == (job, "job_ended")


def test_a_shrink_before_a_kill_ends_with_the_job(two: Two) -> None:
    job = two.told.running_job({"h1": 2}, max_tasks=3)
    shrink, _ = two.race(lambda s: s.shrink(job, tasks=[1]), lambda s: s.kill(job))
    assert two.told.request(shrink)["state"] == "cancelled"
    assert two.told.rows("select stop_cause from xce.task where job_id = %s", job) == [
        {"stop_cause": "killed"},
        {"stop_cause": "killed"},
    ]


def test_a_kill_after_a_stop_lets_the_shrink_run_on(two: Two) -> None:
    job = two.told.running_job({"h1": 2}, max_tasks=3)
    shrink = two.told.shrink(job, tasks=[1])
    stopping = two.told.deciding("stop", shrink)
    assert two.race(lambda s: s.apply(stopping), lambda s: s.kill(job)) == ([None], job)
    two.told.gone(job, 1, None, signal=15)
    assert two.told.request(shrink)["state"] == "released"
    two.told.gone(job, 0, None, signal=15)
    assert two.told.job(job)["state"] == "exited"


def test_a_stop_after_a_kill_is_refused(two: Two) -> None:
    job = two.told.running_job({"h1": 2}, max_tasks=3)
    shrink = two.told.shrink(job, tasks=[1])
    stopping = two.told.deciding("stop", shrink)
    assert two.race(lambda s: s.kill(job), lambda s: s.apply(stopping)) == (job, ["version"])
    assert two.told.request(shrink)["state"] == "cancelled"


def test_a_repeat_during_the_first_gets_its_answer(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    first, repeat = two.race(lambda s: s.grow(job, 2, key="k"), lambda s: s.grow(job, 2, key="k"))
    assert first == repeat
    assert two.told.one("select count(*) from xce.resize_request where kind = 'grow'") == 1


def test_a_repeat_with_another_body_is_refused(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    _, refused = two.race(
        lambda s: s.grow(job, 1, key="k"),
        lambda s: s.grow(job, 2, key="k", body_sha256="1"),
    )
    assert refused == "idempotency_key_reused"


def test_a_repeat_of_a_refused_first_is_judged_for_itself(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    old = two.told.grow(job, 2)
    two.race(lambda s: s.cancel(old), lambda s: s.grow(job, 2, key="k"))
    refused, repeat = two.race(lambda s: s.grow(job, 3, key="l"), lambda s: s.grow(job, 0, key="l"))
    assert (refused, repeat) == (
        "above_max",
        two.told.one("select max(id) from xce.resize_request"),
    )


def test_two_submits_with_one_key_make_one_job(two: Two) -> None:
    first, raced = two.race(lambda s: s.submit(key="k"), lambda s: s.submit(key="k"))
    # The second rolled back; its caller runs it again and finds the key (app.db.calls).
    assert raced == "23505"
    assert two.other.submit(key="k") == first
    assert two.told.one("select count(*) from xce.job") == 1
