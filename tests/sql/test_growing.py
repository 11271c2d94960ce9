"""PROTOCOL §4: rules 14, 16 and 18, and how a grow is placed and committed."""

import pytest

from tests.support.story import RefusedError, Story


def refused_grow(story: Story, job: int, tasks: int, **members: object) -> RefusedError:
    before = story.rows("select count(*) from xce.history")
    with pytest.raises(RefusedError) as caught:
        story.grow(job, tasks, **members)
    assert story.rows("select count(*) from xce.history") == before
    return caught.value


def test_14_acceptance_counts_members_and_what_open_grows_ask_for(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=5)
    story.grow(job, 2, least=1)
    caught = refused_grow(story, job, 2)
    assert (caught.code, caught.figures) == (
        "above_max",
        {"max_tasks": 5, "tasks": 2, "tasks_asked": 2, "grantable": 1},
    )
    story.grow(job, 1)


def test_14_leaving_tasks_are_not_counted_at_acceptance_but_at_placement(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=3)
    shrink = story.shrink(job, tasks=[1, 2])
    grow = story.grow(job, 2)
    assert story.apply(story.placing(grow, {"h2": 2})) == ["bounds"]
    story.stop(shrink)
    assert story.apply(story.placing(grow, {"h2": 2})) == ["bounds"]
    story.gone(job, 1)
    assert story.apply(story.placing(grow, {"h2": 2})) == ["bounds"]
    story.gone(job, 2)
    story.place(grow, {"h2": 2})


def test_14_a_grow_that_relied_on_a_cancelled_shrink_is_cancelled(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=3)
    shrink = story.shrink(job, tasks=[2])
    grow = story.grow(job, 1)
    story.cancel(shrink)
    assert (story.request(grow)["state"], story.request(grow)["reason"]) == (
        "cancelled",
        "above_max",
    )
    assert story.shrink(job, tasks=[2])


def test_h02_stopping_tasks_count_toward_the_maximum_until_they_are_gone(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=3)
    shrink = story.shrink(job, count=2)
    story.stop(shrink)
    grow = story.grow(job, 2)
    for gone in (2, 1):
        assert story.apply(story.placing(grow, {"h2": 2})) == ["bounds"]
        story.gone(job, gone, None, signal=9)
    story.place(grow, {"h2": 2})
    story.fetch("h2")
    story.up(job, 3, 4)
    assert story.tasks(job) == {
        0: "running",
        1: "released",
        2: "released",
        3: "running",
        4: "running",
    }


def test_16_a_partial_cancel_lowers_max_and_min_to_at_most_max(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 4, least=3)
    story.cancel(grow, count=2)
    request = story.request(grow)
    assert (
        request["state"],
        request["tasks_asked"],
        request["tasks_min"],
        request["tasks_max"],
    ) == ("pending", 4, 2, 2)
    story.cancel(grow, count=2)
    assert story.request(grow)["state"] == "cancelled"


def test_16_a_placed_grow_gives_its_hold_back_before_it_is_lowered(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 4)
    story.place(grow, {"h2": 4}, commit=False)
    assert (story.request(grow)["state"], story.free("h2")) == ("placed", 0)
    story.cancel(grow, count=1)
    assert (story.request(grow)["state"], story.free("h2")) == ("pending", 4)


def test_16_a_shrink_cancelled_in_part_frees_the_last_it_named(story: Story) -> None:
    job = story.running_job({"h1": 4}, max_tasks=4)
    shrink = story.shrink(job, tasks=[1, 2, 3])
    story.cancel(shrink, count=1)
    assert story.request(shrink)["task_indices"] == [1, 2]
    assert story.one("select shrink_id from xce.task where job_id = %s and index = 3", job) is None
    assert story.events("shrink", shrink) == ["ask", "amend"]


def test_a_hold_is_kept_committed_and_started(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 3)
    story.place(grow, {"h2": 2, "h3": 1}, commit=False)
    assert (story.free("h2"), story.free("h3")) == (2, 3)
    assert story.fetch("h2") == []
    assert story.apply(story.deciding("commit", grow)) == [None]
    assert story.request(grow)["task_indices"] == [1, 2, 3]
    assert (story.free("h2"), story.free("h3")) == (2, 3)


def test_a_hold_on_a_host_that_drains_is_not_committed(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1}, commit=False)
    story.wish("h2", "drain")
    assert story.apply(story.deciding("commit", grow)) == ["host"]
    assert story.apply(story.deciding("unplace", grow, reason="host h2 drains")) == [None]
    assert story.request(grow)["state"] == "pending"
    assert story.one("select state from xce.host where name = 'h2'") == "down"


def test_18_a_cancel_after_commit_is_too_late_and_says_the_outcome(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    with pytest.raises(RefusedError) as caught:
        story.cancel(grow)
    assert (caught.value.code, caught.value.figures["state"]) == ("too_late", "committed")


def test_18_a_commit_after_cancel_is_refused(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 1)
    placing = story.placing(grow, {"h2": 1})
    story.cancel(grow)
    assert story.apply(placing) == ["version"]
    assert story.request(grow)["reason"] == "cancelled by owner"


def test_18_commit_refuses_what_is_past_its_deadline(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 1, deadline_s=0.000001)
    assert story.apply(story.placing(grow, {"h2": 1})) == ["deadline"]
    story.conn.execute("select xce.sweep_deadlines(%s)", (story.epoch,))
    assert (story.request(grow)["state"], story.request(grow)["reason"]) == (
        "cancelled",
        "deadline",
    )


def test_18_a_deadline_never_ends_a_committed_grow(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 1, deadline_s=30)
    story.place(grow, {"h2": 1})
    story.conn.execute(
        "select xce.sweep_deadlines(%s, clock_timestamp() + interval '31 s')", (story.epoch,)
    )
    assert story.request(grow)["state"] == "committed"


def test_a_plan_is_accepted_in_the_part_that_still_holds(story: Story) -> None:
    jobs = [story.running_job({"h1": 1}, max_tasks=5) for _ in range(2)]
    first, second = (story.grow(job, 3) for job in jobs)
    assert story.apply(story.placing(first, {"h2": 3}), story.placing(second, {"h2": 3})) == [
        None,
        "capacity",
    ]
    assert story.request(second)["state"] == "pending"


def test_two_grows_of_one_job_in_one_plan_are_bounded_together(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=6)
    shrink = story.shrink(job, tasks=[2])
    first, second = story.grow(job, 3), story.grow(job, 1)
    assert story.apply(story.placing(first, {"h2": 3}), story.placing(second, {"h3": 1})) == [
        None,
        "bounds",
    ]
    story.cancel(shrink)
    assert story.request(second)["reason"] == "above_max"


def test_a_decision_about_a_job_that_moved_on_is_refused(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=5)
    grow = story.grow(job, 1)
    placing = story.placing(grow, {"h2": 1})
    story.gone(job, 1)
    assert story.apply(placing) == ["version"]


def test_nothing_is_placed_on_a_host_without_a_fresh_heartbeat(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 1)
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = now() - interval '31 s' where host_id = %s",
        (story.hosts["h2"],),
    )
    assert story.apply(story.placing(grow, {"h2": 1})) == ["host"]


def test_h15_cancelled_requests_are_answered_and_nothing_is_left_open(story: Story) -> None:
    for host in ("h2", "h3"):
        story.wish(host, "drain")
    job = story.running_job({"h1": 1}, max_tasks=5)
    story.wish("h1", "drain")
    grow, other = story.grow(job, 1), story.submit(1, user="bob")
    story.cancel(grow)
    story.kill(other, user="bob")
    assert story.one("select count(*) from xce.resize_request where is_open") == 0
    assert story.job(other)["state"] == "exited"


@pytest.mark.parametrize("wish", ["place", "explain"])
def test_h05_a_grant_that_is_interrupted_leaves_all_or_nothing(story: Story, wish: str) -> None:
    job = story.running_job({"h1": 2}, max_tasks=5)
    grow = story.grow(job, 1)
    before = (story.tasks(job), story.request(grow), story.free("h2"))
    story.conn.execute("savepoint interrupted")
    if wish == "place":
        story.place(grow, {"h2": 1})
    else:
        story.apply({"do": "explain", "request_id": grow, "reason": "capacity"})
    story.conn.execute("rollback to savepoint interrupted")
    assert (story.tasks(job), story.request(grow), story.free("h2")) == before


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"if_match": 0}, "stale_generation"),
        ({"hosts": ["nowhere"]}, "invalid"),
        ({"exclude_hosts": ["nowhere"]}, "invalid"),
        ({"user": "mallory"}, "not_found"),
    ],
)
def test_a_bad_grow_is_refused_and_changes_nothing(
    story: Story, members: dict[str, object], code: str
) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    story.user("mallory")
    assert refused_grow(story, job, 1, **members).code == code


def test_only_a_running_parallel_job_can_be_resized(story: Story) -> None:
    serial = story.running_job({"h1": 1})
    waiting = story.submit(1, max_tasks=2)
    assert refused_grow(story, serial, 1).code == "not_resizable"
    assert refused_grow(story, waiting, 1).code == "job_not_running"
    story.gone(serial, 0)
    assert refused_grow(story, serial, 1).code == "job_ended"
    assert refused_grow(story, 999_999, 1).code == "not_found"


def test_17_a_grow_does_not_pass_an_older_one_of_its_job_that_was_refused(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=9)
    older, younger = story.grow(job, 5), story.grow(job, 1)
    assert story.apply(story.placing(older, {"h2": 5}), story.placing(younger, {"h3": 1})) == [
        "capacity",
        "order",
    ]
    assert story.apply(story.placing(younger, {"h3": 1})) == ["order"]
    both = {"h2": 4, "h3": 1}
    assert story.apply(story.placing(older, both), story.placing(younger, {"h3": 1})) == [
        None,
        None,
    ]


def test_14_a_grow_that_still_fits_stays_when_one_before_it_does_not(story: Story) -> None:
    job = story.running_job({"h1": 4, "h2": 2}, max_tasks=6)
    shrink = story.shrink(job, tasks=[1, 2, 3, 4])
    three = story.grow(job, 3)
    one = story.grow(job, 1)
    story.cancel(shrink, 2)
    assert (story.request(three)["state"], story.request(three)["reason"]) == (
        "cancelled",
        "above_max",
    )
    assert story.request(one)["state"] == "pending"


def test_14_a_grow_whose_minimum_fits_stays(story: Story) -> None:
    job = story.running_job({"h1": 4, "h2": 2}, max_tasks=6)
    shrink = story.shrink(job, tasks=[1, 2, 3, 4])
    grow = story.grow(job, 4, least=1)
    story.cancel(shrink, 3)
    assert story.request(grow)["state"] == "pending"
    story.cancel(shrink)
    assert story.request(grow)["reason"] == "above_max"


def test_12_what_can_never_fit_is_refused_at_once(story: Story) -> None:
    spread = {"span": {"per_host": 1}, "max_tasks": 9}
    for members in (
        {"hosts": ["h1", "h2"]},
        {"hosts": ["h1", "h2", "h3"], "exclude_hosts": ["h2"]},
    ):
        with pytest.raises(RefusedError) as refused:
            story.submit(3, **spread, **members)
        assert refused.value.code == "never_fits"
        assert refused.value.figures == {"tasks": 3, "hosts": 2, "fits": 2}
    job = story.running_job({"h1": 1}, **spread)
    with pytest.raises(RefusedError) as refused:
        story.grow(job, 2, hosts=["h2"])
    assert refused.value.code == "never_fits"
    story.grow(job, 2, least=1, hosts=["h2"])
    named = story.running_job({"h1": 1}, max_tasks=9, hosts=["h1"])
    with pytest.raises(RefusedError) as refused:
        story.grow(named, 1, hosts=["h2"])
    assert (refused.value.code, refused.value.figures["hosts"]) == ("never_fits", 0)
