"""The leader gives up tasks of a lost host while somebody else decides, in both orders."""

from typing import Any

from tests.sql.test_host_loss import OVER_S, give_up, heard_ago
from tests.sql.test_hosts import silence, state_of
from tests.support.interleave import Two
from tests.support.story import Story


def overdue(two: Two, where: dict[str, int] | None = None, **members: Any) -> int:
    """A job whose task on h2 waits for nothing any more but the leader."""
    job = two.told.running_job(where or {"h1": 1, "h2": 1}, max_tasks=4, **members)
    silence(two.told, "h2")
    heard_ago(two.told, "h2", OVER_S + 1)
    return job


def returned(story: Story) -> int:
    """h2's worker comes back with task 1 of the job: how many it may keep."""
    job = story.one("select max(id) from xce.job")
    live = {"job_id": job, "attempt": 1, "index": 1, "boot_id": "boot-1"}
    return len(story.register("h2", [live])["keep"])


def test_a_worker_that_returns_after_the_loss_keeps_nothing(two: Two) -> None:
    job = overdue(two)
    assert two.race(give_up, returned) == ("judged", 0)
    assert two.told.tasks(job) == {0: "stopping", 1: "lost"}
    assert state_of(two.told, "h2") == "joining"


def test_a_worker_that_returns_before_the_loss_keeps_its_tasks(two: Two) -> None:
    job = overdue(two)
    assert two.race(returned, give_up) == (1, "judged")
    assert two.told.tasks(job) == {0: "running", 1: "running"}


def test_a_kill_after_the_loss_overrides_the_requeue(two: Two) -> None:
    job = overdue(two)
    assert two.race(give_up, lambda s: s.kill(job)) == ("judged", job)
    two.told.gone(job, 0, None, signal=15)
    assert (two.told.job(job)["state"], two.told.job(job)["attempt"]) == ("exited", 1)


def test_a_loss_after_a_kill_only_ends_the_task(two: Two) -> None:
    job = overdue(two)
    assert two.race(lambda s: s.kill(job), give_up) == (job, "judged")
    assert two.told.tasks(job) == {0: "stopping", 1: "lost"}
    two.told.gone(job, 0, None, signal=15)
    assert (two.told.job(job)["state"], two.told.job(job)["reason"]) == ("exited", "killed")


def test_an_operators_word_after_the_loss_finds_nothing_left(two: Two) -> None:
    job = overdue(two)
    retire = two.race(give_up, lambda s: s.operate("retire_host", "h2", confirm_dead=True))
    assert retire == ("judged", two.told.hosts["h2"])
    assert (state_of(two.told, "h2"), two.told.tasks(job)[1]) == ("down", "lost")


def test_a_loss_after_an_operators_word_finds_nothing_left(two: Two) -> None:
    job = overdue(two)
    answers = two.race(lambda s: s.operate("retire_host", "h2", confirm_dead=True), give_up)
    assert answers == (two.told.hosts["h2"], "judged")
    ends = "select count(*) from xce.history where job_id = %s and event = 'lost'"
    assert two.told.one(ends, job) == 1


def test_a_shrink_after_the_loss_counts_the_survivors(two: Two) -> None:
    job = overdue(two, {"h1": 2, "h2": 1}, min_tasks=2, on_host_loss="shrink")
    answers = two.race(give_up, lambda s: s.shrink(job, tasks=[1], at_once=True))
    assert answers == ("judged", "below_min")
    assert two.told.tasks(job) == {0: "running", 1: "running", 2: "lost"}


def test_a_loss_after_a_shrink_was_accepted_lets_it_be_judged_again(two: Two) -> None:
    """What is lost does not count as a survivor (PROTOCOL 10), so the shrink was not stopped."""
    job = overdue(two, {"h1": 2, "h2": 1}, min_tasks=2, on_host_loss="shrink")
    shrink, verdict = two.race(lambda s: s.shrink(job, tasks=[1], at_once=True), give_up)
    assert verdict == "judged"
    assert two.told.tasks(job) == {0: "running", 1: "running", 2: "lost"}
    assert two.told.apply(two.told.deciding("stop", shrink)) == ["below_min"]


def test_a_survivors_own_end_after_the_loss_belongs_to_the_attempt_that_stops(two: Two) -> None:
    job = overdue(two)
    answers = two.race(give_up, lambda s: s.gone(job, 0)["accepted"])
    assert answers == ("judged", 1)
    assert (two.told.job(job)["state"], two.told.job(job)["attempt"]) == ("pending", 2)


def test_a_loss_after_the_last_survivors_end_requeues_too(two: Two) -> None:
    job = overdue(two)
    answers = two.race(lambda s: s.gone(job, 0)["accepted"], give_up)
    assert answers == (1, "judged")
    assert (two.told.job(job)["state"], two.told.job(job)["attempt"]) == ("pending", 2)


def test_a_successor_waits_for_what_the_old_leader_gives_up(two: Two) -> None:
    job = overdue(two)
    two.told.conn.execute("update xce.lease set expires_at = '-infinity'")
    take = "select epoch from xce.take_lease('successor')"
    epoch = two.told.epoch
    assert two.race(give_up, lambda s: s.one(take)) == ("judged", epoch + 1)
    assert two.told.tasks(job) == {0: "stopping", 1: "lost"}


def test_a_loss_of_an_old_leader_after_its_successor_took_over_changes_nothing(two: Two) -> None:
    job = overdue(two)
    two.told.conn.execute("update xce.lease set expires_at = '-infinity'")
    take = "select epoch from xce.take_lease('successor')"
    assert two.race(lambda s: s.one(take), give_up) == (two.told.epoch + 1, "RZ410")
    assert two.told.tasks(job) == {0: "running", 1: "running"}
