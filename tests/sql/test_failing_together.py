"""A start and a grow of one job that fail at once: the start stops the job and takes both along."""

from tests.support.story import Story


def two_committed(story: Story) -> tuple[int, int]:
    """A job whose start and grow are both committed, each with one starting task on h1."""
    job = story.submit(1, max_tasks=2)
    story.place(story.start_of(job), {"h1": 1})
    grow = story.grow(job, 1)
    story.place(grow, {"h1": 1})
    story.fetch("h1")
    return job, grow


def test_20_one_report_may_fail_both(story: Story) -> None:
    job, grow = two_committed(story)
    ended = {"execed": False, "exit_code": None, "signal": None, "lost": False, "reason": "no"}
    said = [story.saying(job, index, "gone", **ended) for index in (0, 1)]
    assert story.report("h1", *said)["accepted"] == 2
    assert story.request(story.start_of(job))["state"] == "failed"
    assert (story.request(grow)["state"], story.request(grow)["reason"]) == ("failed", "job_ended")
    assert story.job(job)["state"] == "exited"


def test_6_both_start_deadlines_may_have_passed(story: Story) -> None:
    job, grow = two_committed(story)
    story.one("select xce.sweep_deadlines(%s, clock_timestamp() + interval '1 hour')", story.epoch)
    assert story.request(story.start_of(job))["state"] == "failed"
    assert (story.request(grow)["state"], story.request(grow)["reason"]) == ("failed", "job_ended")
    assert story.tasks(job) == {0: "stopping", 1: "stopping"}
