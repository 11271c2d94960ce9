"""PROTOCOL §6 and §7: rules 28, 29 and 31 as far as the database keeps them."""

import psycopg
import pytest

from tests.support.story import Story


def state_of(story: Story, host: str) -> str:
    return str(story.one("select state from xce.host where name = %s", host))


def silence(story: Story, host: str) -> None:
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = now() - interval '31 s' where host_id = %s",
        (story.hosts[host],),
    )
    story.conn.execute("select xce.sweep_silence(%s)", (story.epoch or story.lead(),))


def test_a_host_joins_only_when_its_worker_has_reconciled(story: Story) -> None:
    story.hosts["h4"] = story.one("select xce.add_host('h4', 2, 0, 0, '{}', 'story_h4')")
    story.conn.execute("create role story_h4 login in role xce_worker")
    assert state_of(story, "h4") == "joining"
    story.register("h4")
    story.fetch("h4", is_clear=False)
    assert state_of(story, "h4") == "joining"
    story.fetch("h4", is_clear=True)
    assert state_of(story, "h4") == "up"


def test_28_a_silent_host_is_lost_and_its_assigned_tasks_are_withdrawn(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 2, least=1)
    story.place(grow, {"h2": 1, "h3": 1})
    silence(story, "h2")
    assert state_of(story, "h2") == "lost"
    assert story.tasks(job) == {0: "running", 1: "withdrawn", 2: "assigned"}
    story.fetch("h3")
    story.up(job, 2)
    assert (story.request(grow)["state"], story.request(grow)["tasks_granted"]) == ("running", 1)


def test_28_at_silent_the_incarnation_is_over(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, max_tasks=5)
    silence(story, "h2")
    assert (
        story.report("h2", story.saying(job, 1, "gone", execed=True, exit_code=0))["stale"] is True
    )
    assert story.tasks(job) == {0: "running", 1: "running"}


def test_29_on_return_what_has_an_open_row_is_kept_and_all_else_stopped(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 2}, max_tasks=5)
    story.gone(job, 2)
    silence(story, "h2")
    live = [
        {"job_id": job, "attempt": 1, "index": index, "boot_id": "boot-1"} for index in (0, 1, 2)
    ]
    answer = story.register("h2", live)
    assert answer["keep"] == [{"job_id": job, "attempt": 1, "index": 1}]
    assert state_of(story, "h2") == "joining"
    assert [task["index"] for task in story.fetch("h2", is_clear=False)] == [1]
    story.fetch("h2", is_clear=True)
    assert state_of(story, "h2") == "up"
    assert story.tasks(job)[1] == "running"


def test_29_after_a_reboot_nothing_of_the_old_boot_is_kept(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, max_tasks=5)
    live = [{"job_id": job, "attempt": 1, "index": 1, "boot_id": "boot-1"}]
    assert story.register("h2", live, boot="boot-2")["keep"] == []


def test_a_restart_on_a_host_that_is_not_lost_raises_the_incarnation_and_nothing_else(
    story: Story,
) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    before = story.incarnations["h1"]
    story.register("h1")
    assert (story.incarnations["h1"], state_of(story, "h1"), story.tasks(job)) == (
        before + 1,
        "up",
        {0: "running"},
    )


def test_a_message_of_an_old_incarnation_changes_nothing(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    old = story.incarnations["h1"]
    story.register("h1")
    story.incarnations["h1"] = old
    assert story.gone(job, 0)["stale"] is True
    assert story.tasks(job) == {0: "running"}


def test_a_worker_that_remembers_is_told_by_their_ids_what_runs(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=5)
    story.place(story.grow(job, 1), {"h1": 1})
    with story.worker_of("h1"):
        answer = story.one(
            "select xce.worker_fetch(%s, true, null, false)", story.incarnations["h1"]
        )
    running = story.conn.execute(
        "select t.id from xce.task t where t.job_id = %s and t.state = 'running' order by 1", (job,)
    ).fetchall()
    assert [(task["index"], task["state"]) for task in answer["tasks"]] == [(2, "starting")]
    assert sorted(answer["running"]) == [row[0] for row in running]
    assert [task["index"] for task in story.fetch("h1")] == [0, 1, 2]


def test_old_news_changes_nothing(story: Story) -> None:
    job = story.running_job({"h1": 2, "h2": 1}, max_tasks=3)
    story.gone(job, 1, 0)
    before = story.rows("select * from xce.history order by at, lifecycle, row_id, version")
    assert story.gone(job, 1, 9)["old_news"] == 1
    story.up(job, 0)
    story.up(job, 1)
    story.report("h2", story.saying(job, 0, "gone", execed=True, exit_code=1))
    story.report("h1", story.saying(job, 0, "gone", attempt=2, execed=True, exit_code=1))
    assert story.rows("select * from xce.history order by at, lifecycle, row_id, version") == before


def test_a_drain_empties_a_host_and_a_resume_brings_it_back(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    story.wish("h1", "drain")
    assert state_of(story, "h1") == "draining"
    story.gone(job, 0)
    assert state_of(story, "h1") == "down"
    story.wish("h1", "resume")
    assert state_of(story, "h1") == "joining"
    story.fetch("h1")
    assert state_of(story, "h1") == "up"


def test_15_after_commit_tasks_still_start_on_a_draining_host(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    story.wish("h2", "drain")
    assert [task["index"] for task in story.fetch("h2")] == [1]
    story.up(job, 1)
    assert story.request(grow)["state"] == "running"


def test_a_joining_host_starts_nothing(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    story.place(story.grow(job, 1), {"h2": 1})
    silence(story, "h2")
    story.register("h2")
    assert story.fetch("h2", is_clear=False) == []


def test_31_a_decision_of_an_old_epoch_is_refused(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    placing = story.placing(story.grow(job, 1), {"h2": 1})
    story.conn.execute("update xce.lease set expires_at = '-infinity'")
    assert story.one("select epoch from xce.take_lease('successor')") == story.epoch + 1
    with (
        pytest.raises(psycopg.DatabaseError, match="epoch 1 is over") as caught,
        story.conn.transaction(),
    ):
        story.apply(placing)
    assert caught.value.sqlstate == "RZ410"
    assert story.one("select is_leader from xce.take_lease('story')") is False


def test_a_worker_speaks_for_its_own_host_only(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, max_tasks=2)
    story.report("h2", story.saying(job, 0, "gone", execed=True, exit_code=0))
    assert story.tasks(job) == {0: "running", 1: "running"}


@pytest.mark.parametrize("table", ["job", "task", "token", "history", "host", "job_launch"])
def test_a_worker_reads_and_writes_no_table(story: Story, table: str) -> None:
    for statement in (f"select from xce.{table}", f"delete from xce.{table}"):
        with (
            pytest.raises(psycopg.errors.InsufficientPrivilege),
            story.conn.transaction(),
            story.worker_of("h1"),
        ):
            story.conn.execute(statement.encode())


@pytest.mark.parametrize("table", ["job", "task", "resize_request", "host"])
def test_nobody_but_the_routines_may_write_a_state(story: Story, table: str) -> None:
    as_controller = f"set local role xce_controller; update xce.{table} set state = 'running'"
    with pytest.raises(psycopg.errors.InsufficientPrivilege), story.conn.transaction():
        story.conn.execute(as_controller.encode())


def test_the_guard_refuses_even_a_superuser_an_edge_that_is_not_in_the_table(story: Story) -> None:
    job = story.running_job({"h1": 1})
    with (
        pytest.raises(
            psycopg.DatabaseError, match="no edge leads from running to pending"
        ) as caught,
        story.conn.transaction(),
    ):
        story.conn.execute("update xce.job set state = 'pending' where id = %s", (job,))
    assert caught.value.sqlstate == "RZ422"


def is_heartbeat(story: Story, host: str) -> bool:
    """Whether the next exchange of the host's worker counts for the fence."""
    with story.worker_of(host):
        answer = story.one("select xce.worker_fetch(%s, true)", story.incarnations[host])
    return bool(answer["is_heartbeat"])


def seen_ago(story: Story, host: str, seconds: float) -> None:
    story.conn.execute(
        """
        update xce.heartbeat
           set last_seen_at = clock_timestamp() - %s * interval '1 s'
         where host_id = %s
        """,
        (seconds, story.hosts[host]),
    )


def test_26_an_exchange_right_after_a_heartbeat_is_none(story: Story) -> None:
    seen_ago(story, "h1", 4)
    assert is_heartbeat(story, "h1") is True
    assert is_heartbeat(story, "h1") is False


def test_26_a_claim_is_always_a_heartbeat(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    story.place(story.grow(job, 1), {"h2": 1})
    seen_ago(story, "h2", 0)
    assert is_heartbeat(story, "h2") is True


def test_26_after_the_clock_was_set_back_every_exchange_is_a_heartbeat(story: Story) -> None:
    seen_ago(story, "h1", -3600)
    assert is_heartbeat(story, "h1") is True
    assert is_heartbeat(story, "h1") is True


def swept(story: Story, expected: str | None = None) -> str:
    epoch = story.epoch or story.lead()
    return str(story.one("select verdict from xce.sweep_silence(%s, null, %s)", epoch, expected))


def fall_silent(story: Story, *hosts: str) -> None:
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = now() - interval '31 s' where host_id = any (%s)",
        ([story.hosts[host] for host in hosts],),
    )


def test_32_many_hosts_that_fall_silent_together_are_not_judged(story: Story) -> None:
    job = story.submit(1)
    story.place(story.start_of(job), {"h2": 1})
    fall_silent(story, "h1", "h2", "h3")
    assert swept(story) == "paused"
    assert [state_of(story, host) for host in ("h1", "h2", "h3")] == ["up", "up", "up"]
    assert story.tasks(job) == {0: "assigned"}
    story.fetch("h1")
    assert swept(story) == "judged"
    assert [state_of(story, host) for host in ("h1", "h2", "h3")] == ["up", "lost", "lost"]


def test_32_three_of_ten_are_judged_and_four_of_ten_are_not(story: Story) -> None:
    for i in range(4, 11):
        story.host(f"h{i}")
    fall_silent(story, "h1", "h2", "h3", "h4")
    assert swept(story) == "paused"
    story.fetch("h4")
    assert swept(story) == "judged"
    assert state_of(story, "h3") == "lost"


@pytest.mark.parametrize("away", ["-3 s", "3 s"])
def test_32_a_clock_that_jumped_judges_nobody(story: Story, away: str) -> None:
    fall_silent(story, "h2")
    expected = story.one("select (clock_timestamp() + %s::interval)::text", away)
    assert swept(story, expected) == "jumped"
    assert state_of(story, "h2") == "up"
    assert swept(story, story.one("select clock_timestamp()::text")) == "judged"
    assert state_of(story, "h2") == "lost"


def test_26_a_new_incarnation_inherits_the_longest_fence(story: Story) -> None:
    story.conn.execute("update xce.setting set value = 86400 where name = 'fence_s'")
    story.fetch("h1")
    story.conn.execute("update xce.setting set value = 300 where name = 'fence_s'")
    story.register("h1")
    longest = "select fence_s_max from xce.incarnation where host_id = %s and incarnation = %s"
    assert story.one(longest, story.hosts["h1"], story.incarnations["h1"]) == 86400
    story.register("h2")
    assert story.one(longest, story.hosts["h2"], story.incarnations["h2"]) == 300


def test_31_a_hold_on_a_silent_host_is_not_committed(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=3)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1}, commit=False)
    fall_silent(story, "h2")
    assert story.apply(story.deciding("commit", grow)) == ["host"]
    story.fetch("h2")
    assert story.apply(story.deciding("commit", grow)) == [None]


def test_29_over_another_folder_a_worker_is_not_believed(story: Story) -> None:
    job = story.running_job({"h1": 1})

    def register(folder: str, boot: str = "boot-1") -> None:
        with story.worker_of("h1"):
            story.one("select xce.worker_register(%s, '0', '[]', %s)", boot, folder)

    register("one")
    register("one")
    story.conn.execute("savepoint before")
    with pytest.raises(psycopg.Error) as refused:
        register("two")
    assert refused.value.sqlstate == "RZ409"
    story.conn.execute("rollback to before")
    assert story.tasks(job) == {0: "running"}
    # Another boot: nothing of the last one lives.
    register("two", "boot-2")
    story.register("h1")
    story.gone(job, 0)
    register("three")


def test_26_a_shorter_fence_counts_once_the_keeper_has_it(story: Story) -> None:
    def longest() -> int:
        query = "select fence_s_max from xce.incarnation where host_id = %s and incarnation = %s"
        return int(story.one(query, story.hosts["h1"], story.incarnations["h1"]))

    def fetch(fence_s: int | None) -> None:
        with story.worker_of("h1"):
            incarnation = story.incarnations["h1"]
            story.one("select xce.worker_fetch(%s, true, %s)", incarnation, fence_s)

    story.conn.execute("update xce.setting set value = 86400 where name = 'fence_s'")
    fetch(300)
    assert longest() == 86400
    story.conn.execute("update xce.setting set value = 300 where name = 'fence_s'")
    fetch(86400)
    assert longest() == 86400
    fetch(None)
    assert longest() == 86400
    fetch(300)
    assert longest() == 300


def test_a_changed_setting_reaches_a_worker_with_its_next_exchange(story: Story) -> None:
    for name, value in (("heartbeat_s", 1), ("worker_poll_s", 2), ("output_keep_days", 3)):
        story.conn.execute("update xce.setting set value = %s where name = %s", (value, name))
    with story.worker_of("h1"):
        answer = story.one("select xce.worker_fetch(%s, true)", story.incarnations["h1"])
    assert (answer["heartbeat_s"], answer["poll_s"], answer["output_keep_days"]) == (1, 2, 3)
