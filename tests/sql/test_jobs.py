"""PROTOCOL §5: rules 20, 21, 22 (kill), 24 and 25 without loss."""

from datetime import timedelta

import pytest

from tests.support.story import RefusedError, Story


def test_20_a_task_that_ends_by_itself_leaves_the_allocation_at_once(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=3)
    generation = story.job(job)["generation"]
    story.gone(job, 1, 4)
    assert story.job(job)["generation"] == generation + 1
    assert story.free("h1") == 3
    assert (
        story.one(
            "select upper_inf(during) from xce.allocation where job_id = %s and task_index = 1",
            job,
        )
        is False
    )
    assert story.job(job)["state"] == "running"


def test_20_own_exits_below_min_only_forbid_shrinks(story: Story) -> None:
    job = story.running_job({"h1": 3}, min_tasks=2, max_tasks=4)
    story.gone(job, 1)
    story.gone(job, 2)
    assert story.job(job)["state"] == "running"
    with pytest.raises(RefusedError, match="below_min"):
        story.shrink(job, count=1)
    story.grow(job, 1)


def test_20_the_job_ends_when_no_member_is_left_and_its_requests_end_with_it(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=3)
    grow = story.grow(job, 1)
    story.gone(job, 0)
    story.gone(job, 1)
    assert story.job(job)["state"] == "done"
    assert (story.request(grow)["state"], story.request(grow)["reason"]) == (
        "cancelled",
        "job_ended",
    )


def test_20_a_committed_grow_keeps_the_job_going(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=3)
    story.place(story.grow(job, 1), {"h2": 1})
    story.gone(job, 0)
    assert story.job(job)["state"] == "running"
    story.fetch("h2")
    story.up(job, 1)
    story.gone(job, 1)
    assert story.job(job)["state"] == "done"


def test_20_the_head_ends_the_job_where_asked(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=3, ends_when="head")
    story.gone(job, 0, 0)
    assert (story.job(job)["state"], story.job(job)["reason"]) == ("stopping", "head_ended")
    story.gone(job, 1, 5)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)


def test_20_a_failing_task_ends_the_job_where_asked(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=3, on_task_failure="end_job")
    story.gone(job, 1, 5)
    assert (story.job(job)["state"], story.tasks(job)[0]) == ("stopping", "stopping")
    story.gone(job, 0, None, signal=15)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("exited", 5)


@pytest.mark.parametrize(
    ("ends", "state", "code"),
    [
        (((1, 0), (0, 0)), "done", 0),
        (((1, 7), (0, 3)), "exited", 7),
        (((0, 0), (1, 9)), "exited", 9),
    ],
)
def test_21_the_first_non_zero_code_counts(
    story: Story, ends: tuple[tuple[int, int], ...], state: str, code: int
) -> None:
    job = story.running_job({"h1": 2}, max_tasks=3)
    for index, exit_code in ends:
        story.gone(job, index, exit_code)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == (state, code)


def test_21_a_signal_counts_as_128_and_its_number(story: Story) -> None:
    job = story.running_job({"h1": 1})
    story.gone(job, 0, None, signal=11)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("exited", 139)


def test_21_a_failed_grow_is_not_the_jobs_failure(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=3)
    story.place(story.grow(job, 2), {"h2": 2})
    story.fetch("h2")
    story.up(job, 1)
    story.gone(job, 2, None, execed=False, reason="exec: not there")
    story.gone(job, 1, None, signal=15)
    story.gone(job, 0, 0)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)


def test_22_kill_ends_everything_of_the_job_in_one_transaction(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=9)
    shrink = story.shrink(job, tasks=[2])
    story.stop(shrink)
    committed = story.grow(job, 1)
    story.place(committed, {"h2": 1})
    placed = story.grow(job, 1)
    story.place(placed, {"h3": 1}, commit=False)
    pending = story.grow(job, 1)

    story.kill(job)

    assert [story.request(r)["state"] for r in (shrink, committed, placed, pending)] == [
        "stopping",
        "failed",
        "cancelled",
        "cancelled",
    ]
    assert story.tasks(job) == {0: "stopping", 1: "stopping", 2: "stopping", 3: "withdrawn"}
    assert (story.free("h2"), story.free("h3")) == (4, 4)
    story.gone(job, 2, None, signal=15)
    assert (story.request(shrink)["state"], story.tasks(job)[2]) == ("released", "released")
    story.gone(job, 0, 0)
    story.gone(job, 1, None, signal=9)
    assert (story.job(job)["state"], story.job(job)["reason"]) == ("exited", "killed")


def test_22_a_job_that_never_ran_ends_at_once(story: Story) -> None:
    job = story.submit(2)
    start = story.start_of(job)
    story.kill(job)
    assert (story.job(job)["state"], story.request(start)["state"]) == ("exited", "cancelled")
    with pytest.raises(RefusedError, match="job_ended"):
        story.kill(job)


def test_22_a_kill_between_claim_and_fork_ends_when_the_worker_proves_it(story: Story) -> None:
    job = story.submit(1)
    story.place(story.start_of(job), {"h1": 1})
    story.fetch("h1")
    story.kill(job)
    assert story.job(job)["state"] == "stopping"
    story.gone(job, 0, None, execed=False, reason="never forked")
    assert (story.job(job)["state"], story.tasks(job)) == ("exited", {0: "withdrawn"})


def test_a_second_kill_of_a_stopping_job_is_no_fault(story: Story) -> None:
    job = story.running_job({"h1": 1})
    story.kill(job)
    story.kill(job)
    assert story.job(job)["state"] == "stopping"


def test_24_generation_and_revision_rise_where_the_allocation_and_the_view_change(
    story: Story,
) -> None:
    def now() -> tuple[int, int]:
        row = story.job(job)
        return row["generation"], row["revision"]

    job = story.submit(2, max_tasks=5)
    assert now() == (0, 0)
    story.place(story.start_of(job), {"h1": 2})
    assert now() == (1, 1)
    story.fetch("h1")
    story.up(job, 0, 1)
    assert now() == (1, 1)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    assert now() == (2, 1)
    story.fetch("h2")
    story.up(job, 2)
    assert now() == (2, 2)
    shrink = story.shrink(job, tasks=[2])
    assert now() == (2, 2)
    story.stop(shrink)
    assert now() == (3, 3)
    story.gone(job, 2)
    assert now() == (3, 3)
    story.gone(job, 1)
    assert now() == (4, 4)
    failing = story.grow(job, 2)
    story.place(failing, {"h2": 2})
    story.fetch("h2")
    story.gone(job, 3, None, execed=False)
    assert story.request(failing)["state"] == "failed"
    assert story.job(job)["generation"] > 5


def test_25_a_task_is_charged_from_commit_until_it_is_known_gone(story: Story) -> None:
    job = story.running_job({"h1": 2}, cpus=2, max_tasks=2)
    story.gone(job, 1)
    story.gone(job, 0)
    [charged] = story.rows(
        """
        select sum(upper(a.during) - lower(a.during)) as ranges,
               (select sum(case h.event when 'assign' then -1 else 1 end
                           * extract(epoch from h.at))
                  from xce.history h
                 where h.job_id = %(job)s
                   and h.lifecycle = 'task'
                   and h.event in ('assign', 'gone'))
                   as by_history,
               min(a.cpus) as cpus
          from xce.allocation a
         where a.job_id = %(job)s
        """.replace("%(job)s", str(job))
    )
    assert charged["cpus"] == 2
    assert charged["ranges"] > timedelta(0)
    assert charged["ranges"] == timedelta(microseconds=int(charged["by_history"] * 1_000_000))


def test_25_a_hold_counts_against_capacity_and_is_not_charged(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2}, commit=False)
    assert story.free("h2") == 2
    assert story.one("select count(*) from xce.allocation where job_id = %s", job) == 1


def test_25_a_stopping_task_is_charged_until_gone(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=2)
    story.stop(story.shrink(job, tasks=[1]))
    assert (
        story.one(
            "select count(*) from xce.allocation where job_id = %s and upper_inf(during)", job
        )
        == 2
    )
    story.gone(job, 1)
    assert (
        story.one(
            "select count(*) from xce.allocation where job_id = %s and upper_inf(during)", job
        )
        == 1
    )


def test_a_repeated_submit_is_one_job_and_another_body_is_refused(story: Story) -> None:
    first = story.submit(1, key="k1")
    assert story.submit(1, key="k1") == first
    assert story.submit(1, user="bob", key="k1") != first
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 1, key="g")
    for _ in range(3):
        assert story.grow(job, 1, key="g", if_match=99) == grow
    with pytest.raises(RefusedError, match="idempotency_key_reused"):
        story.grow(job, 2, key="g", body_sha256="other")
    assert (
        story.one(
            "select count(*) from xce.resize_request where job_id = %s and kind = 'grow'", job
        )
        == 1
    )


def test_a_known_key_outranks_every_refusal(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 1, key="g")
    story.kill(job)
    assert story.grow(job, 1, key="g") == grow


def test_a_project_must_be_open_or_ones_own(story: Story) -> None:
    story.conn.execute("insert into xce.project (name) values ('secret')")
    with pytest.raises(RefusedError, match="project_not_allowed"):
        story.submit(1, project="secret")
    with pytest.raises(RefusedError, match="project_not_allowed"):
        story.submit(1, project="no such")


def test_a_held_job_is_not_placed_and_gives_its_hold_back(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2}, commit=False)
    story.command("hold", job)
    assert (story.request(grow)["state"], story.request(grow)["reason"]) == ("pending", "held")
    assert story.free("h2") == 4
    assert story.apply(story.placing(grow, {"h2": 2})) == ["held"]
    story.command("hold", job)
    story.command("release", job)
    story.place(grow, {"h2": 2})
    assert story.events("job", job) == ["submit", "start", "hold", "release"]


def test_a_requeued_job_runs_again_as_a_new_attempt_once_nothing_of_the_old_is_left(
    story: Story,
) -> None:
    job = story.running_job({"h1": 2}, max_tasks=5)
    story.grown(job, {"h2": 1})
    waiting = story.grow(job, 1)
    story.command("requeue", job)
    assert (story.request(waiting)["state"], story.request(waiting)["reason"]) == (
        "cancelled",
        "requeued",
    )
    for index in (0, 1):
        story.gone(job, index, None, signal=15)
    assert (story.job(job)["state"], story.job(job)["attempt"]) == ("stopping", 1)
    story.gone(job, 2, None, signal=15)
    assert (story.job(job)["state"], story.job(job)["attempt"]) == ("pending", 2)
    assert story.request(story.start_of(job))["tasks_asked"] == 2
    story.place(story.start_of(job), {"h3": 2})
    story.fetch("h3")
    story.up(job, 0, 1)
    story.gone(job, 0)
    story.gone(job, 1)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)


def test_a_kill_overrides_a_waiting_requeue(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    story.command("requeue", job)
    story.kill(job)
    story.gone(job, 0, None, signal=15)
    assert (story.job(job)["state"], story.job(job)["reason"]) == ("exited", "killed")


def test_only_a_running_job_can_be_requeued(story: Story) -> None:
    job = story.submit(1)
    with pytest.raises(RefusedError, match="job_not_running"):
        story.command("requeue", job)


def test_a_run_limit_counts_from_running_and_stops_the_job(story: Story) -> None:
    job = story.running_job({"h1": 1}, run_limit_s=100)
    sweep = "select xce.sweep_deadlines(%s, clock_timestamp() + %s * interval '1 s')"
    story.conn.execute(sweep, (story.epoch, 99))
    assert story.job(job)["state"] == "running"
    story.conn.execute(sweep, (story.epoch, 101))
    assert story.job(job)["state"] == "stopping"
    story.gone(job, 0, 0)
    assert (story.job(job)["state"], story.job(job)["reason"]) == ("exited", "run_limit")


def test_a_kill_hurries_what_is_stopping_already(story: Story) -> None:
    job = story.running_job({"h1": 2}, min_tasks=1, grace_s=600)
    story.kill(job)
    story.kill(job, grace_s=10)
    assert [task["grace_s"] for task in story.fetch("h1")] == [10, 10]
    story.kill(job, grace_s=60)
    assert [task["grace_s"] for task in story.fetch("h1")] == [10, 10]


def test_a_new_attempt_begins_after_the_last_one_although_the_clock_was_set_back(
    story: Story,
) -> None:
    job = story.running_job({"h1": 1})
    story.command("requeue", job)
    story.conn.execute(
        "update xce.allocation set during = tstzrange(lower(during), null) where job_id = %s",
        (job,),
    )
    story.gone(job, 0)
    ahead = story.one("select clock_timestamp() + interval '1 hour'")
    story.conn.execute(
        "update xce.allocation set during = tstzrange(lower(during), %s) where job_id = %s",
        (ahead, job),
    )
    story.conn.execute(
        "update xce.history set at = %s where job_id = %s and target = 'ended'", (ahead, job)
    )
    other = story.submit(1)
    decisions = [story.placing(story.start_of(j), {"h1": 1}) for j in (job, other)]
    assert story.apply(*decisions) == [None, None]
    starts = story.rows(
        "select lower(during) as at from xce.allocation where job_id = %s and attempt = 2", job
    )
    assert starts == [{"at": ahead}]


def test_a_job_that_cannot_be_settled_holds_up_no_other(story: Story) -> None:
    broken, other = (story.running_job({"h1": 1}, max_tasks=3) for _ in range(2))
    for job in (broken, other):
        story.conn.execute(
            "update xce.task set state = 'stopping', stop_cause = 'killed' where job_id = %s",
            (job,),
        )
        story.conn.execute(
            "update xce.task set state = 'ended', how = 'exited', ended_at = now()"
            " where job_id = %s",
            (job,),
        )
    # What the broken one would have to write is refused.
    refuse = f"alter table xce.history add constraint x_ck check (job_id <> {broken}) not valid"
    story.conn.execute(refuse.encode())
    story.conn.execute("select xce.settle_due(%s)", (story.epoch,))
    assert story.job(broken)["state"] == "running"
    assert story.job(other)["state"] == "exited"
    story.conn.execute("rollback")
    story.conn.execute("begin")


def test_21_an_end_that_nobody_saw_is_not_the_jobs_failure_nor_its_hosts_loss(
    story: Story,
) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, min_tasks=1)
    story.gone(job, 1, None, lost=True)
    assert story.tasks(job) == {0: "running", 1: "lost"}
    story.gone(job, 0)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)
