"""Two writers of one host, in both orders: operators against workers, the leader and owners."""

from typing import Any

from tests.sql.test_hosts import silence, state_of
from tests.support.interleave import Act, Two
from tests.support.story import Story

SIZE = {"cpus": 4, "mem_mib": 1000, "gpus": 0, "labels": {}}


def retire(story: Story) -> int:
    return story.operate("retire_host", "h2", confirm_dead=True)


def remove(story: Story) -> int:
    return story.operate("remove_host", "h2")


def resized(cpus: int) -> Act:
    size = SIZE | {"cpus": cpus}
    return lambda s: s.operate("put_host", "h2", login="story_h2", size=size)


def returned(story: Story) -> Any:
    """h2's worker comes back with task 1 of job 1."""
    live = [{"job_id": 1, "attempt": 1, "index": 1, "boot_id": "boot-1"}]
    job = story.one("select max(id) from xce.job")
    return len(story.register("h2", [one | {"job_id": job} for one in live])["keep"])


def lost_with_a_task(two: Two) -> int:
    job = two.told.running_job({"h1": 1, "h2": 1}, max_tasks=3)
    silence(two.told, "h2")
    return job


def test_a_worker_that_returns_after_a_retire_keeps_nothing(two: Two) -> None:
    job = lost_with_a_task(two)
    answers = two.race(retire, returned)
    assert answers == (two.told.hosts["h2"], 0)
    assert (state_of(two.told, "h2"), two.told.tasks(job)[1]) == ("down", "lost")


def test_a_retire_after_the_worker_returned_is_refused(two: Two) -> None:
    job = lost_with_a_task(two)
    answers = two.race(returned, retire)
    assert answers == (1, "drain_first")
    assert (state_of(two.told, "h2"), two.told.tasks(job)[1]) == ("joining", "running")


def test_a_retire_that_meets_a_new_job_on_the_host_is_run_again(two: Two) -> None:
    lost_with_a_task(two)
    other = two.told.submit()

    def back_used_and_lost(story: Story) -> str:
        story.register("h2")
        story.fetch("h2")
        story.place(story.start_of(other), {"h2": 1}, commit=False)
        silence(story, "h2")
        return state_of(story, "h2")

    assert two.race(back_used_and_lost, retire) == ("lost", "40001")
    retire(two.told)
    assert state_of(two.told, "h2") == "down"
    assert two.told.request(two.told.start_of(other))["state"] == "pending"


def test_a_kill_after_a_retire_stops_what_is_left(two: Two) -> None:
    job = lost_with_a_task(two)
    assert two.race(retire, lambda s: s.kill(job)) == (two.told.hosts["h2"], job)
    assert two.told.tasks(job) == {0: "stopping", 1: "lost"}


def test_a_retire_after_a_kill_ends_what_is_stopping_there(two: Two) -> None:
    job = lost_with_a_task(two)
    assert two.race(lambda s: s.kill(job), retire) == (job, two.told.hosts["h2"])
    assert two.told.tasks(job) == {0: "stopping", 1: "lost"}
    two.told.gone(job, 0, exit_code=None, signal=15)
    assert two.told.job(job)["state"] == "exited"


def test_a_place_after_a_smaller_size_finds_no_room(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=5)
    placing = two.told.placing(two.told.grow(job, 3), {"h2": 3})
    answers = two.race(resized(2), lambda s: s.apply(placing))
    assert answers == (two.told.hosts["h2"], ["capacity"])


def test_a_smaller_size_after_a_place_is_refused(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=5)
    placing = two.told.placing(two.told.grow(job, 3), {"h2": 3})
    assert two.race(lambda s: s.apply(placing), resized(2)) == ([None], "drain_first")


def test_a_place_on_a_host_that_is_being_removed_is_refused(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=5)
    placing = two.told.placing(two.told.grow(job, 1), {"h2": 1})
    two.told.wish("h2", "drain")
    answers = two.race(remove, lambda s: s.apply(placing))
    assert answers[0] == two.told.hosts["h2"]
    assert answers[1] != [None]


def test_a_resume_and_a_remove_exclude_each_other(two: Two) -> None:
    two.told.wish("h2", "drain")
    assert two.race(lambda s: s.wish("h2", "resume"), remove)[1] == "drain_first"
    two.told.fetch("h2")
    two.told.wish("h2", "drain")
    assert two.race(remove, lambda s: s.wish("h2", "resume"))[1] == "not_found"


def test_a_host_put_twice_at_once_is_one(two: Two) -> None:
    def put(story: Story) -> int:
        return story.operate("put_host", "h9", login="story_h9", size=SIZE)

    first, second = two.race(put, put)
    assert second == "23505"
    assert put(two.told) == first
