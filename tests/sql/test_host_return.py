"""PROTOCOL 22, 23, 29 and 32: what the return of a host changes, and when nobody is judged."""

import pytest

from tests.sql.test_host_loss import OVER_S, give_up, heard_ago, last_event, lose, told
from tests.sql.test_hosts import silence, state_of
from tests.support.story import RefusedError, Story


def test_29_a_copy_that_was_replaced_is_stopped_and_nothing_else_is_touched(story: Story) -> None:
    job = story.running_job({"h2": 1})
    kept = story.running_job({"h2": 1, "h1": 1}, fence="keep")
    lose(story, "h2")
    story.place(story.start_of(job), {"h3": 1})
    story.fetch("h3")
    story.up(job, 0)
    live = [{"job_id": one, "attempt": 1, "index": 0, "boot_id": "boot-1"} for one in (job, kept)]
    answer = story.register("h2", live)
    assert answer["keep"] == [{"job_id": kept, "attempt": 1, "index": 0}]
    assert [task["job_id"] for task in story.fetch("h2", is_clear=False)] == [kept]
    # What the stale copy comes to is old news.
    late = story.saying(job, 0, "gone", attempt=1, execed=True, exit_code=9)
    assert story.report("h2", late)["old_news"] == 1
    story.fetch("h2")
    assert (state_of(story, "h2"), story.job(job)["state"]) == ("up", "running")
    assert story.tasks(job) == {0: "running"}
    assert story.tasks(kept) == {0: "running", 1: "running"}


def test_29_after_a_reboot_what_ran_was_lost_with_its_host(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    silence(story, "h2")
    story.register("h2", boot="boot-2")
    story.gone(job, 1, None, lost=True, reason="its record is gone from the host")
    assert last_event(story, job) == ("requeue", "host_lost: h2")


@pytest.mark.parametrize(("after_s", "event"), [(1, "requeue"), (31, "start")])
def test_29_what_a_lost_host_returned_without_was_lost_with_it_and_nothing_later(
    story: Story, after_s: int, event: str
) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    silence(story, "h2")
    story.register("h2")
    ago = f"- interval '{after_s} s'"
    back = f"update xce.history set at = at {ago} where event = 'returned'"
    story.conn.execute(back.encode())
    began = f"update xce.incarnation set started_at = started_at {ago} where incarnation = 2"
    story.conn.execute(began.encode())
    story.gone(job, 1, None, lost=True)
    assert last_event(story, job)[0] == event


def test_29_so_it_was_where_the_host_came_back_before_it_was_lost(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, on_host_loss="exit")
    story.register("h2", boot="boot-2")
    story.gone(job, 1, None, lost=True)
    assert last_event(story, job) == ("stop", "host_lost: h2")


def test_23_what_the_fence_of_a_cut_off_host_ended_was_lost_with_it(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, min_tasks=1, on_host_loss="shrink")
    silence(story, "h2")
    story.register("h2")
    story.gone(job, 1, None, signal=15, lost=True, by_fence=True)
    assert story.tasks(job) == {0: "running", 1: "lost"}
    assert last_event(story, job) == ("amend", "host_lost: h2; it goes on with 1 tasks")
    story.gone(job, 0)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)


def test_23_an_operators_word_is_evidence_and_ends_the_wait(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, loss_grace_s=1000)
    silence(story, "h2")
    story.operate("retire_host", "h2", confirm_dead=True)
    assert story.tasks(job) == {0: "stopping", 1: "lost"}
    assert last_event(story, job) == ("requeue", "host_lost: h2")


def test_29_a_worker_whose_host_was_vouched_for_registers_again_and_keeps_nothing(
    story: Story,
) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    silence(story, "h2")
    story.operate("retire_host", "h2", confirm_dead=True)
    with story.worker_of("h2"):
        answer = story.one("select xce.worker_fetch(%s, true)", story.incarnations["h2"])
    assert answer == {"stale": True}
    live = {"job_id": job, "attempt": 1, "index": 1, "boot_id": "boot-1"}
    assert story.register("h2", [live])["keep"] == []
    assert story.fetch("h2") == []
    assert state_of(story, "h2") == "down"


def test_22_a_requeue_by_hand_waits_for_the_evidence_of_a_lost_host(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, fence="keep")
    silence(story, "h2")
    story.command("requeue", job)
    story.gone(job, 0, None, signal=15)
    heard_ago(story, "h2", 9999)
    give_up(story)
    assert (story.job(job)["state"], story.job(job)["attempt"]) == ("stopping", 1)
    story.operate("retire_host", "h2", confirm_dead=True)
    assert (story.job(job)["state"], story.job(job)["attempt"]) == ("pending", 2)
    assert last_event(story, job) == ("requeued", "requeued by owner")


def test_32_after_a_jump_of_the_clock_fences_count_anew(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    silence(story, "h2")
    heard_ago(story, "h2", OVER_S + 1)
    expected = story.one("select (clock_timestamp() - interval '10 s')::text")
    assert give_up(story, expected) == "jumped"
    sweep = "select verdict from xce.sweep_silence(%s, null, %s)"
    assert story.one(sweep, story.epoch, expected) == "jumped"
    assert give_up(story) == "judged"
    assert story.tasks(job) == {0: "running", 1: "running"}
    story.conn.execute("update xce.clock_jump set at = at - %s * interval '1 s'", (OVER_S,))
    give_up(story)
    assert story.tasks(job) == {0: "stopping", 1: "lost"}


def swept(story: Story) -> str:
    epoch = story.epoch or story.lead()
    return str(story.one("select verdict from xce.sweep_silence(%s)", epoch))


def test_32_hosts_cut_off_at_one_moment_are_not_judged_one_after_the_other(story: Story) -> None:
    """Their last heartbeats lie up to an interval apart."""
    for i, ago in enumerate((31, 29, 27), start=1):
        heard_ago(story, f"h{i}", ago)
    assert swept(story) == "paused"
    assert state_of(story, "h1") == "up"


def test_32_one_that_was_judged_a_moment_before_counts_with_them(story: Story) -> None:
    heard_ago(story, "h1", 31)
    assert swept(story) == "judged"
    heard_ago(story, "h1", 34)
    for host in ("h2", "h3"):
        heard_ago(story, host, 31)
    assert swept(story) == "paused"
    heard_ago(story, "h1", 36)
    assert swept(story) == "judged"


def test_32_the_share_is_a_setting_and_so_the_operators_word(story: Story) -> None:
    for host in ("h1", "h2", "h3"):
        heard_ago(story, host, 31)
    assert swept(story) == "paused"
    refused = "select xce.write_settings('{\"mass_loss_percent\": 101}', null)"
    assert "at most 100" in story.one(refused)
    assert story.one(refused.replace("101", "100")) is None
    assert swept(story) == "judged"
    assert [state_of(story, host) for host in ("h1", "h2", "h3")] == ["lost"] * 3


def test_32_an_operator_may_vouch_for_a_silent_host_that_is_not_judged(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    for host in ("h1", "h2", "h3"):
        heard_ago(story, host, 31)
    assert swept(story) == "paused"
    wanted = {"states": None, "name": "h2", "after": 0, "limit": 1}
    assert told(story, "wanted_hosts", wanted, "hosts")[0]["reason"] == "silent"
    with pytest.raises(RefusedError, match="invalid"):
        story.operate("retire_host", "h2", confirm_dead=False)
    story.operate("retire_host", "h2", confirm_dead=True)
    assert (state_of(story, "h1"), state_of(story, "h2")) == ("up", "down")
    assert story.tasks(job) == {0: "stopping", 1: "lost"}
