"""PROTOCOL §2: rules 1 to 6, how a start and a grow become running or fail."""

import psycopg
import pytest

from tests.support.story import Story


def test_1_a_claim_moves_assigned_tasks_before_anything_is_launched(story: Story) -> None:
    job = story.submit(2, max_tasks=4)
    story.place(story.start_of(job), {"h1": 2})
    assert story.tasks(job) == {0: "assigned", 1: "assigned"}

    desired = story.fetch("h1")

    assert [(task["index"], task["state"]) for task in desired] == [
        (0, "starting"),
        (1, "starting"),
    ]
    assert desired[0]["launch"]["command"] == ["work"]
    assert story.tasks(job) == {0: "starting", 1: "starting"}


def test_1_a_lost_answer_is_repeated_with_all_that_is_needed_to_launch(story: Story) -> None:
    job = story.submit(1)
    story.place(story.start_of(job), {"h1": 1})
    first = story.fetch("h1")
    assert story.fetch("h1") == first


def test_1_a_record_without_process_is_reported_as_lost(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=4)
    story.gone(job, 1, None, lost=True)
    assert story.tasks(job) == {0: "running", 1: "lost"}


def test_2_a_decision_about_a_task_is_never_changed(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2})
    story.fetch("h2")
    story.up(job, 1)
    story.gone(job, 1, 7)
    assert story.request(grow)["state"] == "committed"
    story.up(job, 1)
    story.up(job, 2)
    assert (story.request(grow)["state"], story.request(grow)["tasks_granted"]) == ("running", 2)


def test_2_an_exit_with_0_before_up_was_told_counts_as_come_up(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    story.fetch("h2")
    story.gone(job, 1, 0)
    assert (story.request(grow)["state"], story.request(grow)["tasks_granted"]) == ("running", 1)


def test_3_a_grow_is_running_only_when_all_its_tasks_are_decided(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 3, least=1)
    story.place(grow, {"h2": 3})
    story.fetch("h2")
    story.up(job, 1)
    story.up(job, 2)
    assert story.request(grow)["state"] == "committed"
    story.up(job, 3)
    assert story.events("grow", grow) == ["ask", "place", "commit", "started"]


def test_4_a_plain_grow_fails_as_a_whole_and_takes_back_only_its_own(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=5)
    grow = story.grow(job, 3)
    story.place(grow, {"h2": 2, "h3": 1})
    story.fetch("h2")
    story.up(job, 2)

    story.gone(job, 3, None, execed=False, reason="exec: No such file or directory: work")

    request = story.request(grow)
    assert request["state"] == "failed"
    assert "task 3: exec: No such file or directory" in request["reason"]
    assert story.tasks(job) == {
        0: "running",
        1: "running",
        2: "stopping",
        3: "failed",
        4: "withdrawn",
    }
    assert story.free("h3") == 4
    story.gone(job, 2, None, signal=15)
    assert story.free("h2") == 4
    assert story.job(job)["state"] == "running"


def test_4_a_grow_with_a_minimum_keeps_what_came_up_and_names_the_others(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=5)
    grow = story.grow(job, 3, least=1)
    story.place(grow, {"h2": 3})
    story.fetch("h2")
    story.up(job, 1)
    story.gone(job, 2, None, execed=False, reason="cwd: No such file or directory: /nowhere")
    story.gone(job, 3, None, lost=True)

    request = story.request(grow)

    assert (request["state"], request["tasks_granted"]) == ("running", 1)
    assert "task 2: cwd: No such file" in request["reason"]
    assert "task 3:" in request["reason"]


def test_4_a_task_that_exits_after_exec_was_started(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    story.fetch("h2")
    story.report(
        "h2", story.saying(job, 1, "up"), story.saying(job, 1, "gone", execed=True, exit_code=3)
    )
    assert story.request(grow)["state"] == "running"
    assert story.job(job)["state"] == "running"


def test_5_all_tasks_withdrawn_by_a_shrink_fail_the_grow_and_name_it(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2})
    shrink = story.shrink(job, tasks=[1, 2])
    story.stop(shrink)
    assert story.request(grow)["state"] == "failed"
    assert story.request(grow)["reason"] == f"withdrawn by #{shrink}"
    assert story.request(shrink)["state"] == "released"
    assert story.job(job)["state"] == "running"


def test_5_a_withdrawn_task_lowers_the_grow_that_brought_it(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 1, "h3": 1})
    story.fetch("h2")
    story.up(job, 1)
    story.stop(story.shrink(job, tasks=[2]))
    request = story.request(grow)
    assert (request["state"], request["tasks_max"], request["tasks_granted"]) == ("running", 1, 1)
    assert story.events("grow", grow) == ["ask", "place", "commit", "amend", "started"]


def pass_start_deadline(story: Story, request: int) -> None:
    deadline = story.request(request)["start_deadline_at"]
    story.conn.execute("select xce.sweep_deadlines(%s, %s)", (story.epoch, deadline))


def test_6_a_start_deadline_takes_back_the_undecided_when_the_minimum_is_up(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 3, least=1)
    story.place(grow, {"h2": 2, "h3": 1})
    story.fetch("h2")
    story.up(job, 1)
    pass_start_deadline(story, grow)
    assert (story.request(grow)["state"], story.request(grow)["tasks_granted"]) == ("running", 1)
    assert story.tasks(job) == {0: "running", 1: "running", 2: "stopping", 3: "withdrawn"}


def test_6_a_start_deadline_fails_the_grow_below_its_minimum(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2})
    story.fetch("h2")
    story.up(job, 1)
    pass_start_deadline(story, grow)
    assert story.request(grow)["state"] == "failed"
    assert "start deadline" in story.request(grow)["reason"]
    assert story.tasks(job) == {0: "running", 1: "stopping", 2: "stopping"}


def test_a_start_is_judged_by_the_jobs_minimum(story: Story) -> None:
    job = story.submit(3, min_tasks=2, max_tasks=3)
    start = story.start_of(job)
    story.place(start, {"h1": 3})
    story.fetch("h1")
    story.up(job, 0)
    story.up(job, 1)
    story.gone(job, 2, None, execed=False, reason="exec: Permission denied: work")
    assert (story.request(start)["state"], story.request(start)["tasks_granted"]) == ("running", 2)


def test_a_start_that_cannot_come_up_ends_its_job_with_the_reason(story: Story) -> None:
    job = story.submit(2, min_tasks=2)
    story.place(story.start_of(job), {"h1": 1, "h2": 1})
    story.fetch("h1")
    story.gone(job, 0, None, execed=False, reason="exec: No such file or directory: work")
    ended = story.job(job)
    assert (ended["state"], ended["exit_code"]) == ("exited", 127)
    assert "No such file or directory" in ended["reason"]
    assert story.free("h2") == 4


def test_a_task_index_lives_once(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=2)
    with pytest.raises(psycopg.errors.UniqueViolation), story.conn.transaction():
        story.conn.execute(
            """
            insert into xce.task (job_id, attempt, index, host_id, request_id, state,
                                  cpus, mem_mib, gpus, assigned_at)
            select job_id, 2, index, host_id, request_id, 'assigned',
                   cpus, mem_mib, gpus, assigned_at
              from xce.task
             where job_id = %s
            """,
            (job,),
        )
