"""PROTOCOL 22 to 28: when the tasks of a lost host end, and what becomes of their jobs."""

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from app.db.reads import selected
from app.db.statements import statement
from tests.sql.test_hosts import silence
from tests.support.story import Story

#: Fence, grace and slack of a job with the defaults.
OVER_S = 300 + 10 + 5


def heard_ago(story: Story, host: str, seconds: float) -> None:
    """The last accepted heartbeat of a host was so long ago."""
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = clock_timestamp() - %s * interval '1 s'"
        " where host_id = %s",
        (seconds, story.hosts[host]),
    )


def give_up(story: Story, expected: str | None = None) -> str:
    """The leader looks for tasks to give up; its verdict."""
    epoch = story.epoch or story.lead()
    return str(story.one("select verdict from xce.sweep_losses(%s, null, %s)", epoch, expected))


def lose(story: Story, *hosts: str, after_s: float = OVER_S + 1) -> None:
    """The hosts were lost together, so long ago."""
    for host in hosts:
        silence(story, host)
    for host in hosts:
        heard_ago(story, host, after_s)
    assert give_up(story) == "judged"


def last_event(story: Story, job: int) -> tuple[str, str]:
    row = story.rows(
        "select event, reason from xce.history where lifecycle = 'job' and row_id = %s"
        " order by id desc limit 1",
        job,
    )[0]
    return row["event"], row["reason"]


def set_to(story: Story, **settings: float) -> None:
    for name, value in settings.items():
        story.conn.execute("update xce.setting set value = %s where name = %s", (value, name))


def test_26_tasks_wait_out_fence_grace_and_five_seconds(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, grace_s=20, on_host_loss="exit")
    lose(story, "h2", after_s=300 + 20 + 4)
    assert story.tasks(job) == {0: "running", 1: "running"}
    heard_ago(story, "h2", 300 + 20 + 6)
    give_up(story)
    assert story.tasks(job) == {0: "stopping", 1: "lost"}


def test_23_a_longer_loss_grace_is_waited_for_too(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, loss_grace_s=1000)
    lose(story, "h2", after_s=999)
    assert story.tasks(job) == {0: "running", 1: "running"}
    heard_ago(story, "h2", 1001)
    give_up(story)
    assert story.tasks(job) == {0: "stopping", 1: "lost"}


def test_23_a_shorter_loss_grace_does_not_go_before_the_evidence(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, loss_grace_s=0)
    lose(story, "h2", after_s=OVER_S - 1)
    assert story.tasks(job) == {0: "running", 1: "running"}


def test_22_a_stopping_job_waits_for_the_evidence_alone(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, loss_grace_s=1000)
    story.kill(job)
    lose(story, "h2")
    assert story.tasks(job) == {0: "stopping", 1: "lost"}
    story.gone(job, 0, None, signal=15)
    assert story.job(job)["state"] == "exited"


def test_26_a_fence_that_was_lengthened_before_maintenance_is_waited_out(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    set_to(story, fence_s=7200)
    story.fetch("h2")
    set_to(story, fence_s=300)
    lose(story, "h2", after_s=7200)
    assert story.tasks(job) == {0: "running", 1: "running"}
    heard_ago(story, "h2", 7200 + 16)
    give_up(story)
    assert story.tasks(job) == {0: "stopping", 1: "lost"}


def test_27_with_fence_keep_only_evidence_ends_the_wait_and_it_says_so(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, fence="keep", max_tasks=3)
    shrink = story.shrink(job, tasks=[1])
    story.stop(shrink)
    lose(story, "h2", after_s=9_999_999)
    assert story.tasks(job) == {0: "running", 1: "stopping"}
    says = "host_lost: waits for h2 to return, or an operator (fence: keep)"
    reads = {"job_id": job, "states": None, "all": False, "host": None, "limit": 9}
    tasks = told(story, "tasks_of_job", reads | {"after_index": -1, "after_attempt": 0})
    assert [task["reason"] for task in tasks] == [None, f"shrink #{shrink}; {says}"]
    wanted = {"ids": [job], "user_id": None}
    assert told(story, "wanted_ids", wanted, "jobs")[0]["reason"] == says
    requests = told(story, "wanted_ids", wanted | {"ids": [shrink]}, "resizes")
    assert (requests[0]["state"], requests[0]["reason"]) == ("stopping", says)
    story.operate("retire_host", "h2", confirm_dead=True)
    assert story.tasks(job) == {0: "running", 1: "released"}
    assert told(story, "wanted_ids", wanted, "jobs")[0]["reason"] is None


def told(story: Story, name: str, values: dict[str, Any], rest: str = "") -> list[dict[str, Any]]:
    """What a reading query of the API answers."""
    with story.conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(selected(name, rest) if rest else statement(name), values).fetchall()


def test_28_back_before_the_fence_is_over_the_tasks_are_adopted_without_an_edge(
    story: Story,
) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    lose(story, "h2", after_s=OVER_S - 1)
    live = {"job_id": job, "attempt": 1, "index": 1}
    assert story.register("h2", [live | {"boot_id": "boot-1"}])["keep"] == [live]
    heard_ago(story, "h2", 9999)
    give_up(story)
    assert story.tasks(job) == {0: "running", 1: "running"}
    task = story.one("select id from xce.task where job_id = %s and index = 1", job)
    assert story.events("task", task) == ["assign", "start", "up"]


def test_an_old_epoch_gives_nothing_up(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1})
    silence(story, "h2")
    heard_ago(story, "h2", 9999)
    story.epoch += 1
    with pytest.raises(psycopg.DatabaseError) as caught, story.conn.transaction():
        give_up(story)
    assert caught.value.sqlstate == "RZ410"
    assert story.tasks(job) == {0: "running", 1: "running"}


def test_22_23_requeue_asks_for_the_submitted_size_once_nothing_of_it_runs(story: Story) -> None:
    job = story.running_job({"h1": 2, "h2": 1}, max_tasks=5)
    story.grown(job, {"h3": 1})
    grow = story.grow(job, 1)
    lose(story, "h2")
    assert last_event(story, job) == ("requeue", "host_lost: h2")
    assert (story.job(job)["attempt"], story.job(job)["state"]) == (1, "stopping")
    assert story.request(grow)["reason"] == "requeued"
    for index in (0, 1, 3):
        story.gone(job, index, None, signal=15)
    again = story.job(job)
    assert (again["attempt"], again["state"], again["exit_code"]) == (2, "pending", None)
    assert story.request(story.start_of(job))["tasks_asked"] == 3


def test_23_shrink_goes_on_with_enough_survivors_and_the_head(story: Story) -> None:
    job = story.running_job({"h1": 2, "h2": 1}, min_tasks=2, on_host_loss="shrink")
    before = story.job(job)["generation"]
    lose(story, "h2")
    assert story.tasks(job) == {0: "running", 1: "running", 2: "lost"}
    now = story.job(job)
    assert (now["state"], now["attempt"], now["generation"]) == ("running", 1, before + 1)
    assert last_event(story, job) == ("amend", "host_lost: h2; it goes on with 2 tasks")
    # Own exits may take it below its minimum: that loss is settled.
    story.gone(job, 1)
    story.gone(job, 0)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)


@pytest.mark.parametrize(("where", "min_tasks"), [({"h1": 2, "h2": 1}, 3), ({"h2": 1, "h1": 2}, 1)])
def test_23_shrink_with_too_few_survivors_or_without_the_head_is_a_requeue(
    story: Story, where: dict[str, int], min_tasks: int
) -> None:
    job = story.running_job(where, min_tasks=min_tasks, on_host_loss="shrink")
    lose(story, "h2")
    assert last_event(story, job) == ("requeue", "host_lost: h2")


def test_23_exit_ends_the_job_with_the_reason(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, on_host_loss="exit")
    lose(story, "h2")
    story.gone(job, 0)
    ended = story.job(job)
    assert (ended["state"], ended["reason"]) == ("exited", "host_lost: h2")


def test_23_two_hosts_lost_at_once_are_one_loss(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1, "h3": 1}, on_host_loss="shrink")
    story.host("h4")
    lose(story, "h2", "h3")
    assert story.tasks(job) == {0: "running", 1: "lost", 2: "lost"}
    assert last_event(story, job) == ("amend", "host_lost: h2, h3; it goes on with 1 tasks")


def test_23_a_second_loss_decides_anew(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1, "h3": 1}, min_tasks=2, on_host_loss="shrink")
    lose(story, "h2")
    assert last_event(story, job)[0] == "amend"
    lose(story, "h3")
    assert last_event(story, job) == ("requeue", "host_lost: h3")


def test_23_survivors_that_a_committed_grow_brings_are_waited_for(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, min_tasks=2, max_tasks=4, on_host_loss="shrink")
    grow = story.grow(job, 2)
    story.place(grow, {"h3": 2})
    story.fetch("h3")
    story.up(job, 2)
    lose(story, "h2")
    assert story.job(job)["state"] == "running"
    story.up(job, 3)
    assert story.request(grow)["state"] == "running"
    assert last_event(story, job) == ("amend", "host_lost: h2; it goes on with 3 tasks")


def test_23_survivors_of_a_grow_that_fails_are_none(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, min_tasks=2, max_tasks=4, on_host_loss="shrink")
    grow = story.grow(job, 2)
    story.place(grow, {"h3": 2})
    story.fetch("h3")
    story.up(job, 2)
    lose(story, "h2")
    story.gone(job, 3, None, execed=False, reason="no such file")
    assert story.request(grow)["state"] == "failed"
    assert last_event(story, job) == ("requeue", "host_lost: h2")


def test_23_a_head_that_ended_by_itself_ends_the_job_and_no_loss_revives_it(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, ends_when="head")
    silence(story, "h2")
    story.gone(job, 0, 0)
    heard_ago(story, "h2", OVER_S + 1)
    give_up(story)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)


def test_23_the_head_that_is_lost_is_no_end_by_itself(story: Story) -> None:
    job = story.running_job({"h2": 1, "h1": 1}, ends_when="head")
    lose(story, "h2")
    assert last_event(story, job) == ("requeue", "host_lost: h2")


def test_23_a_loss_is_no_failure_that_ends_the_job(story: Story) -> None:
    job = story.running_job(
        {"h1": 1, "h2": 1}, min_tasks=1, on_task_failure="end_job", on_host_loss="shrink"
    )
    lose(story, "h2")
    assert story.job(job)["state"] == "running"


def test_23_a_failure_that_was_reported_first_ends_the_job(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, on_task_failure="end_job")
    story.gone(job, 0, 3)
    lose(story, "h2")
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("exited", 3)


def test_25_a_lost_task_is_charged_until_its_hosts_last_heartbeat(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, on_host_loss="exit")
    seen = "select last_seen_at from xce.heartbeat where host_id = %s"
    seen_at = story.one(seen, story.hosts["h2"])
    silence(story, "h2")
    story.conn.execute("update xce.heartbeat set last_seen_at = %s", (seen_at,))
    later = f"select xce.sweep_losses(%s, clock_timestamp() + interval '{OVER_S + 1} s')"
    story.conn.execute(later.encode(), (story.epoch,))
    range_of = "select lower(during), upper(during) from xce.allocation where job_id = %s"
    charged = story.rows(f"{range_of} and task_index = 1", job)[0]
    assert charged["lower"] < charged["upper"] == seen_at
