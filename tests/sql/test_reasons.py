"""What a row says of why it is so outlives what is worth less, and tells of what was not seen."""

from typing import Any

import pytest

from tests.sql.test_hosts import silence
from tests.support.story import Story


@pytest.mark.parametrize("verbs", [["hold"], ["hold", "release"], ["release"]])
def test_why_a_job_stops_outlives_a_hold(story: Story, verbs: list[str]) -> None:
    job = story.running_job({"h1": 1})
    story.kill(job)
    for verb in verbs:
        story.command(verb, job)
    assert (story.job(job)["state"], story.job(job)["reason"]) == ("stopping", "killed")
    story.gone(job, 0, None, signal=15)
    assert (story.job(job)["state"], story.job(job)["reason"]) == ("exited", "killed")


def test_a_held_job_says_so_and_a_released_one_nothing(story: Story) -> None:
    story.host("h1")
    job = story.submit()
    story.command("hold", job)
    assert story.job(job)["reason"] == "held"
    story.command("release", job)
    assert story.job(job)["reason"] is None


def test_why_a_host_is_lost_outlives_a_drain_wish(story: Story) -> None:
    story.host("h1")
    silence(story, "h1")
    why = story.one("select reason from xce.host where name = 'h1'")
    assert why
    for wish in ("drain", "resume"):
        story.wish("h1", wish)
        assert story.one("select reason from xce.host where name = 'h1'") == why


def test_a_job_whose_last_task_was_lost_says_so(story: Story) -> None:
    job = story.running_job({"h1": 1})
    story.gone(job, 0, None, lost=True)
    ended = story.job(job)
    assert (ended["state"], ended["reason"]) == ("exited", "task 0 was lost")
    assert ended["exit_code"] is None


def test_a_loss_is_no_failure_beside_tasks_that_ended_well(story: Story) -> None:
    job = story.running_job({"h1": 2})
    story.gone(job, 0, None, lost=True)
    story.gone(job, 1, 0)
    assert story.job(job)["state"] == "done"


def history(story: Story, job: int) -> list[dict[str, Any]]:
    query = "select lifecycle, event from xce.history where job_id = %s order by at, id"
    return story.rows(query, job)


def test_history_tells_a_cause_before_what_follows_from_it(story: Story) -> None:
    job = story.running_job({"h1": 1})
    story.gone(job, 0)
    told = [(row["lifecycle"], row["event"]) for row in history(story, job)]
    assert told[-3:] == [("task", "gone"), ("job", "stop"), ("job", "completed")]
