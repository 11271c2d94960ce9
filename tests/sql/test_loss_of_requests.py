"""PROTOCOL 4, 6, 11 to 15 and 23 with a lost host: what becomes of open requests."""

import pytest

from tests.sql.test_host_loss import OVER_S, give_up, heard_ago, last_event, lose
from tests.sql.test_hosts import silence
from tests.support.story import RefusedError, Story


def test_06_what_was_assigned_in_a_start_on_a_lost_host_goes_by_the_policy_at_once(
    story: Story,
) -> None:
    job = story.submit(2, loss_grace_s=1000)
    start = story.start_of(job)
    story.place(start, {"h1": 1, "h2": 1})
    story.fetch("h1")
    silence(story, "h2")
    assert story.tasks(job) == {0: "stopping", 1: "withdrawn"}
    assert (story.request(start)["state"], story.request(start)["reason"]) == ("failed", "requeued")
    assert last_event(story, job) == ("requeue", "host_lost: h2")


def test_06_what_was_starting_in_a_start_waits_for_the_fence(story: Story) -> None:
    job = story.submit(2, on_host_loss="exit")
    story.place(story.start_of(job), {"h1": 1, "h2": 1})
    story.fetch("h1")
    story.fetch("h2")
    story.up(job, 0)
    lose(story, "h2", after_s=OVER_S - 1)
    assert story.tasks(job) == {0: "running", 1: "starting"}
    heard_ago(story, "h2", OVER_S + 1)
    give_up(story)
    assert last_event(story, job) == ("stop", "host_lost: h2")


def test_06_a_start_goes_on_with_the_survivors(story: Story) -> None:
    job = story.submit(3, min_tasks=2, on_host_loss="shrink", tasks_min=2)
    start = story.start_of(job)
    story.place(start, {"h1": 2, "h2": 1})
    silence(story, "h2")
    story.fetch("h1")
    story.up(job, 0, 1)
    request = story.request(start)
    assert (request["state"], request["tasks_granted"]) == ("running", 2)
    assert story.job(job)["state"] == "running"


def test_06_a_start_that_a_lost_host_keeps_from_its_deadline_goes_by_the_policy(
    story: Story,
) -> None:
    job = story.submit(2, min_tasks=2, start_s=1)
    start = story.start_of(job)
    story.place(start, {"h1": 1, "h2": 1})
    story.fetch("h1")
    story.fetch("h2")
    story.up(job, 0)
    silence(story, "h2")
    story.conn.execute("update xce.resize_request set start_deadline_at = clock_timestamp()")
    story.conn.execute("select xce.sweep_deadlines(%s)", (story.epoch,))
    assert story.request(start)["state"] == "committed"
    heard_ago(story, "h2", OVER_S + 1)
    give_up(story)
    assert story.request(start)["reason"] == "requeued"
    assert last_event(story, job) == ("requeue", "host_lost: h2")


def test_06_at_its_deadline_a_start_with_its_minimum_up_waits_for_no_lost_host(
    story: Story,
) -> None:
    job = story.submit(2, min_tasks=1, start_s=1)
    start = story.start_of(job)
    story.place(start, {"h1": 1, "h2": 1})
    story.fetch("h1")
    story.fetch("h2")
    story.up(job, 0)
    silence(story, "h2")
    story.conn.execute("update xce.resize_request set start_deadline_at = clock_timestamp()")
    story.conn.execute("select xce.sweep_deadlines(%s)", (story.epoch,))
    assert story.request(start)["state"] == "running"
    heard_ago(story, "h2", OVER_S + 1)
    give_up(story)
    assert story.tasks(job) == {0: "running", 1: "lost"}
    assert story.job(job)["state"] == "running"


def test_23_a_grows_task_lost_before_it_came_up_counts_against_its_grow_alone(
    story: Story,
) -> None:
    job = story.running_job({"h1": 1}, max_tasks=3, loss_grace_s=1000)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    story.fetch("h2")
    lose(story, "h2")
    assert story.request(grow)["state"] == "failed"
    assert story.tasks(job) == {0: "running", 1: "lost"}
    assert story.job(job)["state"] == "running"


def test_04_a_partial_grow_runs_without_what_was_lost_and_names_it(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 2, least=1)
    story.place(grow, {"h2": 1, "h3": 1})
    story.fetch("h2")
    story.fetch("h3")
    story.up(job, 2)
    lose(story, "h2")
    request = story.request(grow)
    assert (request["state"], request["tasks_granted"]) == ("running", 1)
    assert request["reason"] == "1 of 2 came up; task 1: host h2 was lost"


def test_13_a_shrink_of_a_task_on_a_lost_host_is_released_by_the_fence(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, min_tasks=1)
    shrink = story.shrink(job, tasks=[1])
    story.stop(shrink)
    lose(story, "h2")
    assert story.request(shrink)["state"] == "released"
    assert story.tasks(job) == {0: "running", 1: "released"}
    assert story.job(job)["state"] == "running"


def test_13_or_by_the_report_of_the_worker_that_returned(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, min_tasks=1)
    shrink = story.shrink(job, tasks=[1])
    story.stop(shrink)
    silence(story, "h2")
    story.register("h2")
    story.gone(job, 1, None, signal=15)
    assert story.request(shrink)["state"] == "released"


def test_11_a_pending_shrink_whose_task_is_lost_is_cancelled(story: Story) -> None:
    job = story.running_job({"h1": 2, "h2": 1}, min_tasks=1, on_host_loss="shrink")
    shrink = story.shrink(job, tasks=[2])
    lose(story, "h2")
    request = story.request(shrink)
    assert (request["state"], request["reason"]) == ("cancelled", "nothing_to_release")


def test_14_a_grow_may_ask_for_the_room_below_the_maximum_that_a_loss_leaves(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, min_tasks=1, max_tasks=2, on_host_loss="shrink")
    silence(story, "h2")
    with pytest.raises(RefusedError, match="above_max"):
        story.grow(job, 1)
    heard_ago(story, "h2", OVER_S + 1)
    give_up(story)
    grow = story.grow(job, 1)
    story.place(grow, {"h3": 1})
    story.fetch("h3")
    story.up(job, 2)
    assert story.request(grow)["state"] == "running"


def test_15_what_a_grow_has_assigned_on_a_lost_host_is_decided_as_failed(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=3)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 1, "h3": 1})
    silence(story, "h2")
    request = story.request(grow)
    assert (request["state"], story.job(job)["state"]) == ("failed", "running")
    assert "task 1: its host is lost" in request["reason"]
    assert story.tasks(job) == {0: "running", 1: "withdrawn", 2: "withdrawn"}
