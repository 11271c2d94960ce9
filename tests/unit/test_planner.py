"""What the planner decides, case by case, over a world in memory."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.model import (
    Cancel,
    Commit,
    Constraint,
    Decision,
    Explain,
    Place,
    Policy,
    Resources,
    Span,
    Stop,
    Unplace,
)
from app.planner import plan
from app.scheduling import tick
from tests.support.world import NOW, World

FIRST_FIT = Policy()
FCFS = Policy("fcfs")


def decided(world: World, policy: Policy = FIRST_FIT) -> list[Decision]:
    return list(plan(world.picture(), policy, world.now).decisions)


def turn(world: World, policy: Policy = FIRST_FIT) -> list[Decision]:
    """Plan and apply once; every decision must hold."""
    plan_ = plan(world.picture(), policy, world.now)
    outcomes = world.applied(plan_).outcomes
    assert all(outcome.accepted for outcome in outcomes), (plan_.decisions, outcomes)
    return list(plan_.decisions)


def running(world: World, tasks: int = 1, **terms: object) -> int:
    """A job that runs with `tasks` tasks."""
    job_id = world.submit(tasks, **terms)
    turn(world)
    world.bring_up(job_id)
    return job_id


def cluster(*cpus: int) -> World:
    """Hosts A, B, C … with these many cpus."""
    world = World()
    for name, count in zip("ABCDEFGH", cpus, strict=False):
        world.add_host(name, count)
    return world


# First come -----------------------------------------------------------------------------------


def test_the_line_is_served_in_the_order_of_acceptance() -> None:
    world = cluster(4)
    first, second, third = world.submit(2), world.submit(2), world.submit(2)
    turn(world)
    assert [len(world.members(job)) for job in (first, second, third)] == [2, 2, 0]
    assert world.requests[3].reason == "capacity"


def test_starts_and_grows_stand_in_one_line() -> None:
    world = cluster(4)
    job = running(world, 2)
    grow = world.grow(job, 2)
    world.submit(2)
    turn(world)
    assert world.requests[grow].state == "committed"
    assert world.requests[grow + 1].reason == "capacity"


def test_first_fit_lets_a_small_one_pass_and_fcfs_does_not() -> None:
    for policy, tasks in ((FIRST_FIT, 1), (FCFS, 0)):
        world = cluster(4)
        running(world, 2)
        world.submit(4)
        small = world.submit(1)
        turn(world, policy)
        assert len(world.members(small)) == tasks
        assert world.requests[3].reason == (None if tasks else "order")


@pytest.mark.parametrize("reason", ["held", "begin_at", "exceeds_cluster"])
def test_under_fcfs_only_one_that_waits_for_room_blocks_the_line(reason: str) -> None:
    world = cluster(4)
    terms = {"held": {"held": True}, "begin_at": {"begin_at": NOW + timedelta(hours=1)}}
    world.submit(5 if reason == "exceeds_cluster" else 1, **terms.get(reason, {}))
    second = world.submit(1)
    turn(world, FCFS)
    assert world.requests[1].reason == reason
    assert len(world.members(second)) == 1


def test_priority_goes_before_age() -> None:
    world = cluster(1)
    world.submit(1)
    urgent = world.submit(1, priority=5)
    turn(world)
    assert len(world.members(urgent)) == 1


def test_a_second_grow_never_passes_the_first_of_its_job() -> None:
    """PROTOCOL 17, whatever the policy."""
    world = cluster(4, 1)
    job = running(world, 2, hosts=("A",))
    running(world, 1, hosts=("A",))
    world.grow(job, 2)
    small = world.grow(job, 1)
    turn(world)
    assert world.requests[small - 1].reason == "capacity"
    assert world.requests[small].reason == "order"
    assert len(world.members(job)) == 2


def test_two_grows_of_one_job_are_served_in_one_tick() -> None:
    world = cluster(4)
    job = running(world, 1)
    world.grow(job, 1)
    world.grow(job, 2)
    assert [type(d) for d in turn(world)] == [Place, Place]
    assert len(world.members(job)) == 4


def test_a_grow_takes_from_its_minimum_up_what_fits() -> None:
    world = cluster(4)
    job = running(world, 1)
    world.grow(job, 10, least=1)
    turn(world)
    assert len(world.members(job)) == 4


def test_planning_again_without_a_change_plans_nothing() -> None:
    world = cluster(4)
    world.submit(3)
    world.submit(3)
    assert [type(d) for d in turn(world)] == [Place, Explain]
    assert decided(world) == []


# Hosts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("joining", "capacity"),
        ("lost", "capacity"),
        ("silent", "capacity"),
        # These come back only when an operator says so, as one that is down.
        ("drain", "exceeds_cluster"),
        ("draining", "exceeds_cluster"),
    ],
)
def test_a_host_that_is_not_fit_takes_nothing(trouble: str, reason: str) -> None:
    world = cluster(4)
    host = world.host("A")
    if trouble == "drain":
        host.is_drain_wanted = True
    elif trouble == "silent":
        host.is_fresh = False
    else:
        host.state = trouble
    world.submit(1)
    turn(world)
    assert world.requests[1].reason == reason


def test_tasks_on_a_drained_host_take_no_room_from_the_others() -> None:
    world = cluster(4, 4)
    job = world.submit(4)
    turn(world)
    [drained] = world.where(job)
    other = "B" if drained == "A" else "A"
    world.submit(4)
    turn(world)
    world.host(drained).is_drain_wanted = True
    world.grow(job, 4)
    turn(world)
    assert list(world.where(job)) == [drained]
    assert world.requests[3].reason == "capacity", f"{other} is full of others"


def test_a_host_that_is_down_does_not_count_as_configured() -> None:
    world = cluster(4, 2)
    world.host("A").state = "down"
    world.submit(3)
    turn(world)
    assert world.requests[1].reason == "exceeds_cluster"


def test_named_hosts_are_the_only_ones_and_excluded_ones_never() -> None:
    world = cluster(2, 2, 2)
    on_b = world.submit(2, hosts=("B", "C"), exclude_hosts=("C",))
    not_a = world.submit(2, exclude_hosts=("A",))
    too_many = world.submit(3, hosts=("A",))
    turn(world)
    assert world.where(on_b) == {"B": 2}
    assert world.where(not_a) == {"C": 2}
    assert world.members(too_many) == []
    assert world.requests[3].reason == "exceeds_cluster"


def test_a_grow_may_name_hosts_within_those_of_its_job() -> None:
    world = cluster(2, 2, 2)
    job = running(world, 1, hosts=("A", "B"))
    world.grow(job, 1, hosts=("B", "C"))
    turn(world)
    assert world.where(job) == {"A": 1, "B": 1}


def test_labels_are_met_all_of_them() -> None:
    world = World()
    world.add_host("A", 8, zone="x")
    world.add_host("B", 8, zone="y", disk="ssd")
    world.add_host("C", 8, zone="x", disk="hdd")
    ssd = Constraint("disk", ("ssd", "hdd"))
    job = world.submit(2, constraints=(ssd, Constraint("zone", ("x",))))
    any_disk = world.submit(1, constraints=(Constraint("disk"),), exclude_hosts=("C",))
    nowhere = world.submit(1, constraints=(Constraint("disk", ("tape",)),))
    turn(world)
    assert world.where(job) == {"C": 2}
    assert world.where(any_disk) == {"B": 1}
    assert world.members(nowhere) == []
    assert world.requests[3].reason == "exceeds_cluster"


def test_all_resources_bound_a_host() -> None:
    world = World()
    world.add_host("A", cpus=8, mem_mib=1000, gpus=1)
    job = world.submit(9, least=1, resources=Resources(1, 300))
    with_gpu = world.submit(2, least=1, resources=Resources(1, 0, 1))
    turn(world)
    assert len(world.members(job)) == 3
    assert len(world.members(with_gpu)) == 1


def test_idle_gpus_are_spared_for_those_who_ask() -> None:
    world = World()
    world.add_host("A", 4, gpus=4)
    world.add_host("B", 4)
    plain = world.submit(5)
    turn(world)
    assert world.where(plain) == {"B": 4, "A": 1}


# Placement: shared/data/README.md, "Placement cases" ------------------------------------------


@pytest.mark.parametrize(
    ("span", "least", "tasks", "where"),
    [
        (Span(is_one_host=True), 6, 6, {"A": 6}),
        (Span(per_host=1), 4, 4, {"A": 1, "B": 1, "C": 1, "D": 1}),
        (Span(per_host=1), 5, 5, {}),
        (Span(per_host=2), 7, 7, {"A": 2, "B": 2, "C": 2, "D": 1}),
        (Span(per_host=4), 10, 10, {"A": 4, "B": 4, "C": 2}),
        (Span(per_host=4), 4, 20, {"A": 4, "B": 4, "C": 4, "D": 2}),
        (Span(), 18, 18, {"A": 8, "B": 4, "C": 4, "D": 2}),
        (Span(), 19, 19, {}),
    ],
)
def test_placement_cases(span: Span, least: int, tasks: int, where: dict[str, int]) -> None:
    world = cluster(8, 4, 4, 2)
    job = world.submit(tasks, least=least, span=span)
    turn(world)
    assert world.where(job) == where


def test_a_grow_on_one_host_gets_at_most_what_is_left_there() -> None:
    world = cluster(8, 4, 4, 2)
    job = running(world, 6, span=Span(is_one_host=True))
    world.grow(job, 3)
    world.grow(job, 5, least=1)
    turn(world)
    assert world.where(job) == {"A": 6}
    assert world.requests[2].reason == "exceeds_cluster"
    world.requests.pop(2)
    turn(world)
    assert world.where(job) == {"A": 8}


def test_the_span_is_held_on_the_resulting_allocation() -> None:
    world = cluster(8, 4)
    job = running(world, 4, span=Span(per_host=2))
    world.grow(job, 1)
    turn(world)
    assert world.requests[2].reason == "exceeds_cluster"


def test_two_tasks_on_one_host_wait_for_the_span_while_two_hosts_have_one_each() -> None:
    world = cluster(2, 2)
    for name in "AB":
        running(world, 1, hosts=(name,))
    world.submit(2, span=Span(is_one_host=True))
    turn(world)
    assert world.requests[3].reason == "span"


def test_the_fullest_host_that_takes_all_goes_first() -> None:
    world = cluster(8, 4, 3)
    job = world.submit(3)
    turn(world)
    assert world.where(job) == {"C": 3}


def test_ties_go_to_the_smaller_id() -> None:
    world = cluster(4, 4, 4)
    job = world.submit(2)
    turn(world)
    assert world.where(job) == {"A": 2}


@pytest.mark.parametrize(
    ("existing", "where"),
    [("prefer", {"A": 4}), ("exclude", {"A": 2, "B": 2}), ("any", {"A": 2, "B": 2})],
)
def test_existing_hosts(existing: str, where: dict[str, int]) -> None:
    world = cluster(8, 2)
    job = running(world, 2, hosts=("A",))
    world.jobs[job] = replace(world.jobs[job], hosts=None)
    world.grow(job, 2, existing_hosts=existing)
    turn(world)
    assert world.where(job) == where


# Why ------------------------------------------------------------------------------------------


def test_a_held_job_waits_and_its_hold_is_given_back() -> None:
    world = cluster(4)
    job = world.submit(2)
    world.requests[1].state, world.requests[1].holds = "placed", {1: 2}
    world.hold(job)
    other = world.submit(3)
    assert [type(d) for d in turn(world)] == [Unplace, Place]
    assert world.requests[1].reason == "held"
    assert len(world.members(other)) == 3


def test_a_job_waits_for_its_time() -> None:
    world = cluster(4)
    job = world.submit(1, begin_at=NOW + timedelta(seconds=1))
    turn(world)
    assert world.requests[1].reason == "begin_at"
    world.now = NOW + timedelta(seconds=1)
    turn(world)
    assert len(world.members(job)) == 1


def test_a_reason_changes_with_its_cause() -> None:
    world = cluster(4)
    running(world, 4)
    job = world.submit(2)
    turn(world)
    assert world.requests[2].reason == "capacity"
    world.hold(job)
    assert turn(world) == [Explain(2, "held")]


def test_a_request_past_its_deadline_is_cancelled_and_its_hold_free_at_once() -> None:
    world = cluster(4)
    job = running(world, 1)
    grow = world.grow(job, 3, deadline_at=NOW)
    world.requests[grow].state, world.requests[grow].holds = "placed", {1: 3}
    other = world.submit(3)
    assert turn(world)[0] == Cancel(grow, 1, "deadline")
    assert len(world.members(other)) == 3


def test_what_a_job_left_behind_is_cancelled() -> None:
    world = cluster(4)
    job = running(world, 1)
    grow = world.grow(job, 1)
    world.jobs[job] = replace(world.jobs[job], state="stopping")
    assert turn(world) == [Cancel(grow, 1, "job_ended")]


# Maximum (PROTOCOL 14, R2) --------------------------------------------------------------------


def test_stopping_tasks_count_toward_the_maximum_until_they_are_gone() -> None:
    world = cluster(8)
    job = running(world, 4, max_tasks=4)
    first, last = world.members(job)[0], world.members(job)[-1]
    world.shrink(job, [last.id])
    grow = world.grow(job, 1)
    assert [type(d) for d in turn(world)] == [Stop, Explain]
    assert world.requests[grow].reason == "max_tasks"
    world.report(last.id, "gone")
    turn(world)
    assert world.requests[grow].state == "committed"
    assert first.state == "running"


def test_room_of_stopping_tasks_is_not_there_yet_but_not_beyond_the_cluster() -> None:
    world = cluster(4)
    job = running(world, 4)
    world.shrink(job, [task.id for task in world.members(job)[2:]])
    grow = world.grow(job, 2)
    turn(world)
    assert world.requests[grow].reason == "capacity"


def test_a_withdrawn_task_makes_room_in_the_same_tick() -> None:
    world = cluster(4)
    job = running(world, 3, max_tasks=4)
    world.grow(job, 1)
    turn(world)
    newest = world.members(job)[-1]
    assert newest.state == "assigned"
    world.shrink(job, [newest.id])
    grow = world.grow(job, 1)
    assert [type(d) for d in turn(world)] == [Stop, Place]
    assert world.requests[grow].state == "committed"


def test_a_grow_gets_what_the_maximum_leaves_when_its_minimum_allows() -> None:
    world = cluster(8)
    job = running(world, 3, max_tasks=5)
    world.grow(job, 4, least=1)
    turn(world)
    assert len(world.members(job)) == 5


def test_a_grow_that_relied_on_a_cancelled_shrink_is_cancelled() -> None:
    world = cluster(8)
    job = running(world, 4, max_tasks=4)
    shrink = world.shrink(job, [world.members(job)[-1].id])
    grow = world.grow(job, 1)
    world.requests[shrink].terms["deadline_at"] = NOW
    assert turn(world) == [Cancel(shrink, 1, "deadline"), Cancel(grow, 1, "above_max")]


# Placed ---------------------------------------------------------------------------------------


def test_a_placed_request_is_committed_where_its_hosts_are_fit() -> None:
    world = cluster(4)
    job = world.submit(2)
    world.requests[1].state, world.requests[1].holds = "placed", {1: 2}
    assert turn(world) == [Commit(1, 1)]
    assert world.where(job) == {"A": 2}


@pytest.mark.parametrize("trouble", ["is_drain_wanted", "is_fresh"])
def test_a_hold_on_a_host_that_is_no_longer_fit_moves(trouble: str) -> None:
    """PROTOCOL 15."""
    world = cluster(4, 4)
    job = world.submit(2)
    world.requests[1].state, world.requests[1].holds = "placed", {1: 2}
    setattr(world.host("A"), trouble, trouble == "is_drain_wanted")
    assert [type(d) for d in turn(world)] == [Unplace, Place]
    assert world.where(job) == {"B": 2}


def test_a_placed_grow_gives_way_to_an_earlier_one_of_its_job() -> None:
    world = cluster(5, 1)
    job = running(world, 1, hosts=("A",))
    running(world, 1, hosts=("A",))
    first, second = world.grow(job, 2), world.grow(job, 2)
    world.requests[second].state, world.requests[second].holds = "placed", {1: 2}
    turn(world)
    assert world.requests[first].state == "committed"
    assert (world.requests[second].state, world.requests[second].reason) == ("pending", "capacity")


# Shrinks (PROTOCOL 10) ------------------------------------------------------------------------


def test_shrinks_pass_grows() -> None:
    world = cluster(4)
    job = running(world, 3)
    world.grow(job, 4, least=4)
    shrink = world.shrink(job, [world.members(job)[-1].id])
    turn(world)
    assert world.requests[shrink].state == "stopping"


def test_a_shrink_waits_for_a_grow_it_depends_on_and_says_so() -> None:
    world = cluster(8)
    job = running(world, 2, min_tasks=2)
    grow = world.grow(job, 1)
    turn(world)
    shrink = world.shrink(job, [world.members(job)[1].id])
    assert turn(world) == [Explain(shrink, f"after #{grow}")]
    assert decided(world) == []
    world.bring_up(job)
    assert turn(world) == [Stop(shrink, 1)]


def test_a_running_task_of_a_committed_grow_is_no_survivor_yet() -> None:
    world = cluster(8)
    job = running(world, 2, min_tasks=2)
    grow = world.grow(job, 2)
    turn(world)
    newest = world.members(job)[2]
    world.report(newest.id, "start")
    world.report(newest.id, "up")
    shrink = world.shrink(job, [world.members(job)[1].id])
    assert turn(world) == [Explain(shrink, f"after #{grow}")]


@pytest.mark.parametrize("state", ["lost", "joining"])
def test_a_survivor_on_a_lost_host_does_not_count_and_is_waited_for(state: str) -> None:
    world = cluster(2, 2)
    job = running(world, 3, min_tasks=2)
    world.host("B").state = state
    shrink = world.shrink(job, [world.members(job)[0].id])
    assert turn(world) == [Explain(shrink, "host_lost")]


def test_a_shrink_that_would_leave_too_few_for_good_is_cancelled() -> None:
    world = cluster(4)
    job = running(world, 3, min_tasks=2)
    shrink = world.shrink(job, [world.members(job)[2].id])
    world.report(world.members(job)[1].id, "gone")
    assert turn(world) == [Cancel(shrink, 1, "below_min")]


def test_taking_tasks_that_have_not_started_is_always_allowed() -> None:
    world = cluster(8)
    job = running(world, 2, min_tasks=2)
    world.grow(job, 2)
    turn(world)
    assigned = world.members(job)[2:]
    world.report(assigned[0].id, "start")
    shrink = world.shrink(job, [task.id for task in assigned])
    assert turn(world) == [Stop(shrink, 1)]
    assert [task.state for task in assigned] == ["stopping", "ended"]


def test_of_two_shrinks_the_second_sees_what_the_first_left() -> None:
    world = cluster(8)
    job = running(world, 3, min_tasks=2)
    first = world.shrink(job, [world.members(job)[2].id])
    second = world.shrink(job, [world.members(job)[1].id])
    assert turn(world) == [Stop(first, 1), Cancel(second, 1, "below_min")]


def test_a_shrink_whose_tasks_all_ended_by_themselves_is_cancelled() -> None:
    """PROTOCOL 11."""
    world = cluster(8)
    job = running(world, 3)
    last = world.members(job)[2]
    shrink = world.shrink(job, [last.id])
    world.report(last.id, "gone")
    assert turn(world) == [Cancel(shrink, 1, "nothing_to_release")]


# The tick -------------------------------------------------------------------------------------


async def test_a_tick_counts_what_it_did_and_asks_for_another_after_a_refusal() -> None:
    class Moved(World):
        async def apply(self, plan_):
            self.host("A").is_fresh = False
            return await super().apply(plan_)

    world = Moved()
    world.add_host("A", 4)
    world.submit(1)
    report = await tick(world, FIRST_FIT)
    assert (report.decided, report.accepted, report.refused) == (1, 0, {"host": 1})
    assert report.is_due_again
    report = await tick(world, FIRST_FIT)
    assert (report.decided, report.accepted, report.is_due_again) == (1, 1, False)


async def test_a_long_plan_is_applied_in_pieces() -> None:
    sizes = []

    class Counting(World):
        async def apply(self, plan_):
            sizes.append(len(plan_.decisions))
            return await super().apply(plan_)

    world = Counting()
    world.add_host("A", 300)
    for _ in range(300):
        world.submit(1)
    report = await tick(world, FIRST_FIT)
    assert (sizes, report.accepted) == ([250, 50], 300)
    assert (await tick(world, FIRST_FIT)).decided == 0
