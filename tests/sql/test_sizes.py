"""PROTOCOL §4, rule 17: requests for a size (`to: n`)."""

import pytest

from tests.support.story import RefusedError, Story


def test_17_a_size_becomes_a_grow_or_a_shrink_and_stays_it(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=6)
    grow = story.resize_to(job, 5)
    assert (story.request(grow)["kind"], story.request(grow)["tasks_max"]) == ("grow", 2)
    shrink = story.resize_to(job, 1)
    assert (story.request(shrink)["kind"], story.request(shrink)["task_indices"]) == (
        "shrink",
        [2, 1],
    )
    assert (story.request(grow)["state"], story.request(grow)["superseded_by"]) == (
        "cancelled",
        shrink,
    )
    again = story.resize_to(job, 3)
    assert (story.request(again)["kind"], story.request(again)["tasks_max"]) == ("grow", 2)
    assert story.request(shrink)["state"] == "pending"


def test_17_a_size_supersedes_pending_and_placed_grows_and_frees_their_holds(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=9)
    placed, pending = story.grow(job, 2), story.grow(job, 1)
    story.place(placed, {"h2": 2}, commit=False)
    assert story.free("h2") == 2
    latest = story.resize_to(job, 2)
    assert story.free("h2") == 4
    for old in (placed, pending):
        assert story.request(old)["state"] == "cancelled"
        assert story.request(old)["reason"] == f"superseded by #{latest}"
        assert story.request(old)["superseded_by"] == latest


def test_17_committed_grows_count_as_members(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=9)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2})
    latest = story.resize_to(job, 4)
    assert story.request(latest)["tasks_max"] == 1
    assert story.request(grow)["state"] == "committed"


def test_17_stopping_shrinks_count_as_gone(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=3)
    story.stop(story.shrink(job, tasks=[1, 2]))
    latest = story.resize_to(job, 2)
    assert (story.request(latest)["kind"], story.request(latest)["tasks_max"]) == ("grow", 1)


def test_17_the_size_it_has_ends_at_once(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=4)
    pending = story.grow(job, 1)
    asked = story.resize_to(job, 2)
    assert (story.request(asked)["state"], story.request(asked)["reason"]) == (
        "cancelled",
        "already_there",
    )
    assert story.request(pending)["superseded_by"] == asked


@pytest.mark.parametrize(("size", "code"), [(0, "below_min"), (1, "below_min"), (5, "above_max")])
def test_a_size_outside_the_bounds_is_refused(story: Story, size: int, code: str) -> None:
    job = story.running_job({"h1": 3}, min_tasks=2, max_tasks=4)
    pending = story.grow(job, 1)
    with pytest.raises(RefusedError, match=code):
        story.resize_to(job, size)
    assert story.request(pending)["state"] == "pending"


def test_h47_a_newer_smaller_size_withdraws_what_is_still_pending(story: Story) -> None:
    job = story.running_job({"h1": 1}, min_tasks=1, max_tasks=6)
    four = story.resize_to(job, 4)
    two = story.resize_to(job, 2)
    assert story.request(four)["superseded_by"] == two
    story.place(two, {"h2": 1})
    story.fetch("h2")
    story.up(job, 1)
    assert story.tasks(job) == {0: "running", 1: "running"}
