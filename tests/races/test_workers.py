"""Workers against the leader and callers (PROTOCOL 1, 2, 11 to 13, 22, 28)."""

from typing import Any

from tests.support.interleave import Two
from tests.support.story import Story


def gone(two: Two, job: int, index: int, **facts: Any) -> Any:
    report = {
        "execed": True,
        "exit_code": 0,
        "signal": None,
        "lost": False,
        "reason": None,
    } | facts
    host = two.told.host_of(job, index)
    said = two.told.saying(job, index, "gone", **report)
    return lambda story: story.report(host, said)["accepted"]


def up(two: Two, job: int, index: int) -> Any:
    host = two.told.host_of(job, index)
    said = two.told.saying(job, index, "up")
    return lambda story: story.report(host, said)["accepted"]


def states(host: str) -> Any:
    return lambda story: [task["state"] for task in story.fetch(host)]


def silent(two: Two, *hosts: str) -> None:
    two.told.conn.execute(
        "update xce.heartbeat set last_seen_at = last_seen_at - interval '1 hour'"
        " where host_id = any (%s)",
        ([two.told.hosts[host] for host in hosts],),
    )


def sweep_silence(story: Story) -> Any:
    return story.one("select rings from xce.sweep_silence(%s)", story.epoch)


def test_gone_before_the_stop_is_exited(two: Two) -> None:
    job = two.told.running_job({"h1": 2}, max_tasks=3)
    shrink = two.told.shrink(job, tasks=[1])
    stopping = two.told.deciding("stop", shrink)
    answers = two.race(gone(two, job, 1), lambda s: s.apply(stopping))
    assert answers == (1, ["version"])
    assert two.told.tasks(job) == {0: "running", 1: "exited"}
    assert two.told.request(shrink)["reason"] == "nothing_to_release"


def test_gone_after_the_stop_is_released(two: Two) -> None:
    job = two.told.running_job({"h1": 2}, max_tasks=3)
    shrink = two.told.shrink(job, tasks=[1])
    stopping = two.told.deciding("stop", shrink)
    answers = two.race(lambda s: s.apply(stopping), gone(two, job, 1))
    assert answers == ([None], 1)
    assert two.told.tasks(job) == {0: "running", 1: "released"}
    assert two.told.request(shrink)["state"] == "released"


def grow_of_two(two: Two) -> tuple[int, int]:
    """Task 1 starts on h1, task 2 is assigned on h2; both have to come up."""
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    grow = two.told.grow(job, 2)
    two.told.place(grow, {"h1": 1, "h2": 1})
    two.told.fetch("h1")
    return job, grow


def test_a_report_that_fails_a_grow_before_a_withdrawal(two: Two) -> None:
    job, grow = grow_of_two(two)
    stopping = two.told.deciding("stop", two.told.shrink(job, tasks=[2]))
    assert two.race(gone(two, job, 1, exit_code=3), lambda s: s.apply(stopping)) == (1, ["version"])
    assert two.told.request(stopping["request_id"])["reason"] == "nothing_to_release"
    assert two.told.tasks(job) == {0: "running", 1: "exited", 2: "withdrawn"}
    assert two.told.request(grow)["state"] == "failed"


def test_a_report_after_a_withdrawal_decides_what_is_left(two: Two) -> None:
    job, grow = grow_of_two(two)
    stopping = two.told.deciding("stop", two.told.shrink(job, tasks=[2]))
    answers = two.race(lambda s: s.apply(stopping), up(two, job, 1))
    assert answers == ([None], 1)
    assert two.told.request(grow)["state"] == "running"
    assert two.told.request(grow)["tasks_granted"] == 1
    assert two.told.tasks(job) == {0: "running", 1: "running", 2: "withdrawn"}


def test_up_before_a_stop_has_come_up(two: Two) -> None:
    job, grow = grow_of_two(two)
    two.told.fetch("h2")
    two.told.up(job, 1)
    shrink = two.told.shrink(job, tasks=[2])
    stopping = two.told.deciding("stop", shrink)
    assert two.race(up(two, job, 2), lambda s: s.apply(stopping)) == (1, [None])
    assert two.told.request(grow)["tasks_granted"] == 2
    assert two.told.tasks(job)[2] == "stopping"


def test_up_after_a_stop_is_old_news(two: Two) -> None:
    job, grow = grow_of_two(two)
    two.told.fetch("h2")
    two.told.up(job, 1)
    stopping = two.told.deciding("stop", two.told.shrink(job, tasks=[2]))
    assert two.race(lambda s: s.apply(stopping), up(two, job, 2)) == ([None], 0)
    assert two.told.request(grow)["tasks_granted"] == 1


def test_a_claim_before_a_withdrawal_turns_it_into_a_stop(two: Two) -> None:
    job, _ = grow_of_two(two)
    stopping = two.told.deciding("stop", two.told.shrink(job, tasks=[2]))
    answers = two.race(states("h2"), lambda s: s.apply(stopping))
    assert answers == (["starting"], [None])
    assert two.told.tasks(job)[2] == "stopping"
    assert states("h2")(two.told) == ["stopping"]


def test_a_claim_skips_what_is_being_withdrawn(two: Two) -> None:
    job, _ = grow_of_two(two)
    stopping = two.told.deciding("stop", two.told.shrink(job, tasks=[2]))
    answers = two.race(lambda s: s.apply(stopping), states("h2"), meets=False)
    assert answers == ([None], [])
    assert two.told.tasks(job)[2] == "withdrawn"


def test_a_claim_before_a_kill_is_told_to_stop(two: Two) -> None:
    job, _ = grow_of_two(two)
    assert two.race(states("h2"), lambda s: s.kill(job)) == (["starting"], job)
    assert two.told.tasks(job) == {0: "stopping", 1: "stopping", 2: "stopping"}


def test_a_claim_skips_what_a_kill_takes(two: Two) -> None:
    job, grow = grow_of_two(two)
    assert two.race(lambda s: s.kill(job), states("h2"), meets=False) == (job, [])
    assert two.told.tasks(job) == {0: "stopping", 1: "stopping", 2: "withdrawn"}
    assert two.told.request(grow)["state"] == "failed"


def test_a_claim_is_never_older_than_its_assignment(two: Two) -> None:
    job = two.told.running_job({"h1": 1}, max_tasks=3)
    placing = two.told.placing(two.told.grow(job, 1), {"h2": 1})

    def hold_the_settings(story: Story) -> None:
        story.conn.execute("lock table xce.setting in access exclusive mode")

    # The claim has begun, and waits for a setting, when its task is assigned.
    answers = two.race(hold_the_settings, states("h2"), then=lambda s: s.apply(placing))
    assert answers == ([None], ["starting"])
    moments = two.told.rows(
        """
        select h.at
          from xce.history h
          join xce.task t on h.lifecycle = 'task' and h.row_id = t.id
         where t.job_id = %s and t.index = 1
         order by h.version
        """,
        job,
    )
    assert len(moments) == 2
    assert moments[0]["at"] <= moments[1]["at"]


def test_a_sweep_that_waited_for_a_claim_finds_its_heartbeat(two: Two) -> None:
    job, _ = grow_of_two(two)
    silent(two, "h2")
    answers = two.race(states("h2"), sweep_silence)
    assert answers == (["starting"], [])
    assert two.told.one("select state from xce.host where name = 'h2'") == "up"
    assert two.told.tasks(job)[2] == "starting"


def test_a_claim_after_a_sweep_is_an_old_incarnations(two: Two) -> None:
    job, grow = grow_of_two(two)
    silent(two, "h2")
    _, claimed = two.race(sweep_silence, states("h2"))
    assert claimed == []
    assert two.told.one("select state from xce.host where name = 'h2'") == "lost"
    assert two.told.tasks(job) == {0: "running", 1: "stopping", 2: "withdrawn"}
    assert two.told.request(grow)["state"] == "failed"


def test_a_report_before_a_sweep_counts(two: Two) -> None:
    job, grow = grow_of_two(two)
    two.told.fetch("h2")
    two.told.up(job, 1)
    silent(two, "h2")
    accepted, _ = two.race(up(two, job, 2), sweep_silence)
    assert accepted == 1
    assert two.told.one("select state from xce.host where name = 'h2'") == "lost"
    assert two.told.request(grow)["state"] == "running"


def test_a_report_after_a_sweep_is_an_old_incarnations(two: Two) -> None:
    job, grow = grow_of_two(two)
    two.told.fetch("h2")
    two.told.up(job, 1)
    silent(two, "h2")
    _, reported = two.race(sweep_silence, up(two, job, 2))
    assert reported == "RZ410"
    assert two.told.tasks(job)[2] == "starting"
    assert two.told.request(grow)["state"] == "committed"


def test_a_report_after_a_new_registration_is_an_old_incarnations(two: Two) -> None:
    job, _ = grow_of_two(two)
    before = dict(two.told.incarnations)
    said = two.told.saying(job, 1, "up")
    two.other.incarnations = before
    _, reported = two.race(
        lambda s: s.register("h1", [said | {"boot_id": "boot-1"}])["keep"],
        lambda s: s.report("h1", said),
    )
    assert reported == "RZ410"
    two.told.up(job, 1)
    assert two.told.tasks(job)[1] == "running"
