"""Cases H19, H32, H34, H38 and H40 where a host is lost, or as far as the database keeps them."""

import pytest

from tests.sql.test_host_loss import OVER_S, give_up, heard_ago, last_event, lose
from tests.sql.test_hosts import silence, state_of
from tests.support.story import RefusedError, Story


def start_again(story: Story, job: int, host: str) -> None:
    story.place(story.start_of(job), {host: 1})
    story.fetch(host)
    story.up(job, 0)


def test_h19_a_late_end_of_the_first_run_touches_no_later_one(story: Story) -> None:
    job = story.running_job({"h1": 1})
    story.command("requeue", job)
    assert (story.job(job)["state"], story.job(job)["attempt"]) == ("stopping", 1)
    first = story.saying(job, 0, "gone", attempt=1, execed=True, exit_code=None, signal=9)
    assert story.report("h1", first)["accepted"] == 1
    start_again(story, job, "h1")
    assert story.report("h1", first)["old_news"] == 1
    assert (story.job(job)["state"], story.tasks(job)) == ("running", {0: "running"})


def test_h32_a_dead_host_is_not_removed_before_its_jobs_are_found(story: Story) -> None:
    job = story.running_job({"h2": 2})
    with pytest.raises(RefusedError, match="drain_first"):
        story.operate("remove_host", "h2")
    silence(story, "h2")
    with pytest.raises(RefusedError, match="drain_first"):
        story.operate("remove_host", "h2")
    story.operate("retire_host", "h2", confirm_dead=True)
    story.operate("remove_host", "h2")
    assert state_of(story, "h2") == "removed"
    assert (story.job(job)["state"], story.job(job)["attempt"]) == ("pending", 2)


def test_h34_losses_use_up_no_failure_and_own_failures_still_count(story: Story) -> None:
    job = story.running_job({"h1": 1}, on_task_failure="end_job")
    for attempt, host in enumerate(("h1", "h2", "h1", "h2"), start=1):
        assert story.job(job)["attempt"] == attempt
        lose(story, host)
        assert story.job(job)["state"] == "pending"
        story.register(host)
        story.fetch(host)
        start_again(story, job, "h2" if host == "h1" else "h1")
    assert (story.job(job)["attempt"], story.job(job)["state"]) == (5, "running")
    story.gone(job, 0, 7)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("exited", 7)


def test_h38_h40_a_requeued_job_asks_for_its_submitted_size_and_has_two_ledgers(
    story: Story,
) -> None:
    job = story.running_job({"h2": 1, "h1": 2}, min_tasks=1, max_tasks=4)
    shrink = story.shrink(job, tasks=[2])
    story.stop(shrink)
    story.gone(job, 2, None, signal=15)
    pending = story.shrink(job, tasks=[1])
    lose(story, "h2")
    story.gone(job, 1, None, signal=15)
    closed = story.request(pending)
    assert (closed["state"], closed["reason"]) == ("cancelled", "requeued")
    start = story.request(story.start_of(job))
    assert (start["tasks_asked"], story.job(job)["submitted_tasks"]) == (3, 3)
    story.place(start["id"], {"h1": 2, "h3": 1})
    for host in ("h1", "h3"):
        story.fetch(host)
    story.up(job, 0, 1, 2)
    ledger = story.rows(
        "select attempt, count(*), count(*) filter (where upper_inf(during)) as open"
        " from xce.allocation where job_id = %s group by attempt order by attempt",
        job,
    )
    assert [(row["attempt"], row["count"], row["open"]) for row in ledger] == [(1, 3, 0), (2, 3, 3)]
    assert story.one("select count(*) from xce.job") == 1


def test_the_history_of_a_loss_tells_what_followed_from_what(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    silence(story, "h2")
    heard_ago(story, "h2", OVER_S + 1)
    give_up(story)
    story.gone(job, 0, None, signal=15)
    assert last_event(story, job) == ("requeued", "host_lost: h2")
    told = story.rows(
        "select lifecycle, event, reason, detail from xce.history"
        " where job_id = %s and event in ('lost', 'requeue', 'stop', 'gone', 'requeued')"
        " order by id",
        job,
    )
    assert [(row["lifecycle"], row["event"]) for row in told] == [
        ("task", "lost"),
        ("job", "requeue"),
        ("task", "stop"),
        ("task", "gone"),
        ("job", "requeued"),
    ]
    assert told[0]["reason"] == "host h2 was lost"
    assert told[0]["detail"]["evidence"] == "fence"
    assert {
        row["epoch"] for row in story.rows("select epoch from xce.history where event = 'lost'")
    } == {story.epoch}
