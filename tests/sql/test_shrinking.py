"""PROTOCOL §3: rules 8 to 13."""

import pytest

from tests.support.story import RefusedError, Story


def refused(story: Story, job: int, **members: object) -> RefusedError:
    before = story.rows("select count(*) from xce.history")
    with pytest.raises(RefusedError) as caught:
        story.shrink(job, **members)
    assert story.rows("select count(*) from xce.history") == before
    return caught.value


def test_8_a_task_is_named_by_at_most_one_open_shrink(story: Story) -> None:
    job = story.running_job({"h1": 2, "h2": 2}, max_tasks=4)
    story.shrink(job, tasks=[3])
    assert refused(story, job, tasks=[2, 3]).code == "task_leaving"


def test_8_by_host_and_count_leaving_tasks_are_skipped(story: Story) -> None:
    job = story.running_job({"h1": 2, "h2": 2}, max_tasks=4)
    story.shrink(job, tasks=[3])
    second = story.shrink(job, hosts=["h2"])
    assert story.request(second)["task_indices"] == [2]
    assert refused(story, job, hosts=["h2"]).code == "nothing_to_release"
    assert story.request(story.shrink(job, count=1))["task_indices"] == [1]


def test_9_acceptance_does_not_count_pending_grows(story: Story) -> None:
    job = story.running_job({"h1": 2}, min_tasks=2, max_tasks=5)
    story.grow(job, 2)
    caught = refused(story, job, tasks=[1])
    assert (caught.code, caught.figures["releasable"]) == ("below_min", 0)


def test_9_acceptance_counts_committed_grows(story: Story) -> None:
    job = story.running_job({"h1": 2}, min_tasks=2, max_tasks=5)
    story.place(story.grow(job, 1), {"h2": 1})
    story.shrink(job, tasks=[1])


def test_9_named_tasks_count_as_gone_already(story: Story) -> None:
    job = story.running_job({"h1": 3}, min_tasks=2, max_tasks=3)
    story.shrink(job, tasks=[1])
    assert refused(story, job, tasks=[2]).code == "below_min"


def test_10_a_stop_needs_running_survivors(story: Story) -> None:
    job = story.running_job({"h1": 2}, min_tasks=2, max_tasks=5)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    shrink = story.shrink(job, tasks=[1])
    assert story.apply(story.deciding("stop", shrink)) == ["below_min"]
    story.fetch("h2")
    story.up(job, 2)
    story.stop(shrink)
    assert story.tasks(job) == {0: "running", 1: "stopping", 2: "running"}


def test_10_taking_only_tasks_that_have_not_started_is_always_allowed(story: Story) -> None:
    job = story.running_job({"h1": 2}, min_tasks=2, max_tasks=5)
    story.place(story.grow(job, 1), {"h2": 1})
    story.stop(story.shrink(job, tasks=[2]))
    assert story.tasks(job) == {0: "running", 1: "running", 2: "withdrawn"}


def test_10_survivors_on_a_joining_host_do_not_count(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1, "h3": 1}, min_tasks=2, max_tasks=3)
    shrink = story.shrink(job, tasks=[2])
    story.conn.execute(
        "select xce.advance_host(%s, 'silent', 'controller', now())", (story.hosts["h2"],)
    )
    assert story.apply(story.deciding("stop", shrink)) == ["below_min"]
    assert story.request(shrink)["state"] == "pending"


def test_11_a_named_task_that_ends_by_itself_drops_out(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=3)
    shrink = story.shrink(job, tasks=[1, 2])
    story.gone(job, 1, 0)
    assert story.request(shrink)["task_indices"] == [2]
    assert story.events("shrink", shrink) == ["ask", "amend"]
    story.gone(job, 2, 0)
    assert (story.request(shrink)["state"], story.request(shrink)["reason"]) == (
        "cancelled",
        "nothing_to_release",
    )


def test_12_gone_before_stop_is_exited(story: Story) -> None:
    job = story.running_job({"h1": 3}, max_tasks=3)
    shrink = story.shrink(job, tasks=[1, 2])
    story.gone(job, 1, 5)
    story.stop(shrink)
    story.gone(job, 2, None, signal=9)
    assert story.tasks(job) == {0: "running", 1: "exited", 2: "released"}


def test_12_a_released_task_never_touches_the_jobs_outcome(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=2)
    shrink = story.shrink(job, tasks=[1])
    story.stop(shrink)
    story.gone(job, 1, 3)
    assert story.rows(
        "select how, exit_code from xce.task where job_id = %s and index = 1", job
    ) == [{"how": "released", "exit_code": 3}]
    assert story.request(shrink)["tasks_granted"] == 1
    story.gone(job, 0, 0)
    assert (story.job(job)["state"], story.job(job)["exit_code"]) == ("done", 0)


def test_13_assigned_victims_are_withdrawn_at_stop(story: Story) -> None:
    job = story.running_job({"h1": 1}, max_tasks=4)
    story.place(story.grow(job, 2), {"h2": 2})
    shrink = story.shrink(job, tasks=[1])
    assert story.free("h2") == 2
    story.stop(shrink)
    assert story.free("h2") == 3
    assert story.request(shrink)["state"] == "released"
    assert [task["index"] for task in story.fetch("h2")] == [2]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"tasks": [0]}, "head_task"),
        ({"tasks": [9]}, "unknown_task"),
        ({"tasks": [1, 9]}, "unknown_task"),
        ({"hosts": ["h3"]}, "host_not_in_allocation"),
        ({"hosts": ["nowhere"]}, "host_not_in_allocation"),
        ({"hosts": ["h1"]}, "head_task"),
        ({"count": 3}, "below_min"),
        ({"count": 2_000_000_000}, "below_min"),
        ({"tasks": [1], "if_match": 99}, "stale_generation"),
    ],
)
def test_a_bad_shrink_is_refused_and_changes_nothing(
    story: Story, members: dict[str, object], code: str
) -> None:
    job = story.running_job({"h1": 2, "h2": 1}, min_tasks=1, max_tasks=3)
    assert refused(story, job, **members).code == code


def test_a_count_takes_unstarted_then_draining_then_whole_hosts_then_the_youngest(
    story: Story,
) -> None:
    job = story.running_job({"h1": 2, "h2": 2, "h3": 1}, max_tasks=7)
    story.place(story.grow(job, 1), {"h2": 1})
    story.wish("h1", "drain")
    order = story.rows(
        """
        select c.index
          from xce.job j
         cross join xce.shrink_candidates(j) c
         where j.id = %s
         order by c.rank
        """,
        job,
    )
    assert [row["index"] for row in order] == [5, 1, 4, 3, 2]


def test_h07_releasing_one_host_frees_that_host_and_no_other(story: Story) -> None:
    job = story.running_job({"h1": 4, "h2": 4}, max_tasks=8)
    other = story.running_job({"h3": 4}, user="bob", max_tasks=4)
    shrink = story.shrink(job, hosts=["h2"])
    story.stop(shrink)
    for index in (4, 5, 6, 7):
        story.gone(job, index, None, signal=15)
    assert (story.free("h1"), story.free("h2"), story.free("h3")) == (0, 4, 0)
    on_h2, on_h1 = story.submit(1, hosts=["h2"]), story.submit(1, hosts=["h1"])
    story.place(story.start_of(on_h2), {"h2": 1})
    assert story.apply(story.placing(story.start_of(on_h1), {"h1": 1})) == ["capacity"]
    story.kill(on_h2)
    for index in range(4):
        story.gone(job, index)
        story.gone(other, index)
    story.kill(on_h1)
    assert (story.free("h1"), story.free("h2"), story.free("h3")) == (4, 4, 4)


def test_h12_a_count_takes_the_draining_host_first(story: Story) -> None:
    job = story.submit(4, min_tasks=2, max_tasks=4)
    story.place(story.start_of(job), {"h2": 1, "h1": 2, "h3": 1})
    for host in ("h1", "h2", "h3"):
        story.fetch(host)
    story.up(job, 0, 1, 2, 3)
    story.wish("h1", "drain")
    assert story.request(story.shrink(job, count=2))["task_indices"] == [2, 1]


def test_h12_an_unknown_task_refuses_the_whole_shrink_by_name(story: Story) -> None:
    job = story.running_job({"h1": 2, "h2": 2}, min_tasks=2, max_tasks=4)
    caught = refused(story, job, tasks=[1, 9])
    assert (caught.code, caught.figures["tasks"]) == ("unknown_task", [9])
    assert story.tasks(job) == {0: "running", 1: "running", 2: "running", 3: "running"}


def test_11_a_named_task_that_was_rolled_back_drops_out(story: Story) -> None:
    job = story.running_job({"h1": 3}, min_tasks=1, max_tasks=9)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2})
    story.fetch("h2")
    shrink = story.shrink(job, tasks=[2, 4])
    story.gone(job, 3, execed=False, exit_code=None, reason="no such command")
    assert story.request(grow)["state"] == "failed"
    assert story.request(shrink)["task_indices"] == [2]
    story.stop(shrink)
    story.gone(job, 2)
    assert story.request(shrink)["state"] == "released"
    assert story.request(shrink)["tasks_granted"] == 1
    story.gone(job, 4)
    assert story.tasks(job)[4] == "exited"


def test_8_by_count_nothing_is_left_when_all_but_the_head_leave(story: Story) -> None:
    job = story.running_job({"h1": 3}, min_tasks=1, max_tasks=9)
    story.shrink(job, tasks=[1, 2])
    with pytest.raises(RefusedError) as refused:
        story.shrink(job, count=1)
    assert refused.value.code == "nothing_to_release"


def test_31_a_cancel_whose_reason_has_passed_is_refused(story: Story) -> None:
    job = story.running_job({"h1": 2}, min_tasks=2, max_tasks=9)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    story.fetch("h2")
    shrink = story.shrink(job, tasks=[1])
    cancel = story.deciding("cancel", shrink, reason="below_min")
    story.up(job, 2)
    assert story.apply(cancel) == ["version"]
    assert story.request(shrink)["state"] == "pending"


# -- stopped with its acceptance ----------------------------------------------------------------


def test_at_once_a_shrink_of_running_tasks_stops_with_its_acceptance(story: Story) -> None:
    job = story.running_job({"h1": 3}, min_tasks=1, max_tasks=9)
    generation = story.job(job)["generation"]
    shrink = story.shrink(job, tasks=[2], at_once=True)
    assert story.request(shrink)["state"] == "stopping"
    assert story.events("shrink", shrink) == ["ask", "stop"]
    assert story.job(job)["generation"] == generation + 1
    story.gone(job, 2)
    assert story.request(shrink)["state"] == "released"


def test_at_once_a_shrink_that_must_wait_for_survivors_waits(story: Story) -> None:
    job = story.running_job({"h1": 2}, min_tasks=2, max_tasks=9)
    grow = story.grow(job, 1)
    story.place(grow, {"h2": 1})
    story.fetch("h2")
    shrink = story.shrink(job, tasks=[1], at_once=True)
    assert story.request(shrink)["state"] == "pending"
    story.up(job, 2)
    story.stop(shrink)


def test_at_once_assigned_victims_are_withdrawn_and_decide_their_grow(story: Story) -> None:
    job = story.running_job({"h1": 1}, min_tasks=1, max_tasks=9)
    grow = story.grow(job, 2)
    story.place(grow, {"h2": 2})
    free = story.free("h2")
    shrink = story.shrink(job, tasks=[1, 2], at_once=True)
    assert story.request(shrink)["state"] == "released"
    assert (story.request(grow)["state"], story.request(grow)["reason"]) == (
        "failed",
        f"withdrawn by #{shrink}",
    )
    assert story.free("h2") == free + 2


def test_at_once_a_size_below_supersedes_and_stops(story: Story) -> None:
    job = story.running_job({"h1": 4}, min_tasks=1, max_tasks=9)
    grow = story.grow(job, 2)
    size = story.resize_to(job, 2, at_once=True)
    assert story.request(size)["state"] == "stopping"
    assert story.request(grow)["state"] == "cancelled"
    assert story.request(grow)["superseded_by"] == size
