"""What holds for every plan, over worlds that a random history led to."""

import random
from collections import Counter
from copy import deepcopy
from datetime import timedelta
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace

from app.model import Constraint, Place, Policy, Resources, Snapshot, Span
from app.planner import plan
from tests.support.world import NOW, World

POLICIES = st.sampled_from([Policy("first_fit"), Policy("fcfs")])
SPANS = st.sampled_from(
    [Span(), Span(), Span(per_host=1), Span(per_host=2), Span(is_one_host=True)]
)
EXISTING = st.sampled_from(["any", "prefer", "exclude"])
RESOURCES = st.sampled_from(
    [Resources(1), Resources(1), Resources(2), Resources(1, 300), Resources(1, 0, 1)]
)
NAMES = ("A", "B", "C", "D")
SOME_HOSTS = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A world in which some requests wait, by a history of up to thirty events."""
    world = World()
    for name in NAMES[: draw(st.integers(1, 4))]:
        world.add_host(
            name,
            draw(st.integers(1, 6)),
            draw(st.sampled_from([0, 500, 1000])),
            draw(st.integers(0, 1)),
            **({"disk": draw(st.sampled_from(["ssd", "hdd"]))} if draw(st.booleans()) else {}),
        )
    for _ in range(draw(st.integers(1, 30))):
        draw(st.sampled_from(EVENTS))(draw, world)
    return world


def submit(draw: st.DrawFn, world: World) -> None:
    tasks = draw(st.integers(1, 5))
    least = draw(st.integers(1, tasks))
    world.submit(
        tasks,
        least=least,
        min_tasks=draw(st.integers(1, least)),
        max_tasks=draw(st.integers(tasks, tasks + 4)),
        resources=draw(RESOURCES),
        span=draw(SPANS),
        existing_hosts=draw(EXISTING),
        hosts=draw(st.one_of(st.none(), st.none(), SOME_HOSTS)),
        exclude_hosts=draw(st.one_of(st.just(()), SOME_HOSTS)),
        constraints=draw(st.sampled_from([(), (), (Constraint("disk", ("ssd",)),)])),
        priority=draw(st.sampled_from([0, 0, 0, 1])),
        begin_at=draw(st.sampled_from([None, None, NOW, NOW + timedelta(hours=1)])),
    )


def grow(draw: st.DrawFn, world: World) -> None:
    job_id = _some_running(draw, world)
    if job_id is not None:
        tasks = draw(st.integers(1, 4))
        deadline_at = draw(st.sampled_from([None, None, NOW, NOW + timedelta(hours=1)]))
        existing = draw(st.one_of(st.none(), EXISTING))
        terms: dict[str, Any] = {"deadline_at": deadline_at, "existing_hosts": existing}
        world.grow(job_id, tasks, least=draw(st.integers(1, tasks)), **terms)


def shrink(draw: st.DrawFn, world: World) -> None:
    job_id = _some_running(draw, world)
    if job_id is not None:
        free = [task.id for task in world.members(job_id) if task.shrink_id is None]
        if free:
            world.shrink(job_id, draw(st.lists(st.sampled_from(free), min_size=1, unique=True)))


def report(draw: st.DrawFn, world: World) -> None:
    steps = {
        "assigned": ("start",),
        "starting": ("up", "gone"),
        "running": ("gone",),
        "stopping": ("gone",),
    }
    tasks = [task for task in world.tasks.values() if task.state in steps]
    if tasks:
        task = draw(st.sampled_from(tasks))
        world.report(task.id, draw(st.sampled_from(steps[task.state])))
        world.settle()


def bring_up(draw: st.DrawFn, world: World) -> None:
    job_id = _some_running(draw, world)
    if job_id is not None:
        world.bring_up(job_id)


def change_host(draw: st.DrawFn, world: World) -> None:
    host = draw(st.sampled_from(list(world.hosts.values())))
    host.state = draw(st.sampled_from(["up", "up", "joining", "draining", "lost"]))
    host.is_drain_wanted = draw(st.booleans())
    host.is_fresh = draw(st.booleans())


def hold(draw: st.DrawFn, world: World) -> None:
    if world.jobs:
        world.hold(draw(st.sampled_from(list(world.jobs))), held=draw(st.booleans()))


def turn(draw: st.DrawFn, world: World) -> None:
    """A tick that may be cut short and may leave what it places uncommitted."""
    plan_ = plan(world.picture(), draw(POLICIES), world.now)
    is_commit = draw(st.sampled_from([True, True, False]))
    decisions = tuple(
        replace(d, commit=is_commit) if isinstance(d, Place) else d for d in plan_.decisions
    )
    world.applied(replace(plan_, decisions=decisions[: draw(st.integers(0, len(decisions)))]))


EVENTS = [
    submit,
    submit,
    submit,
    submit,
    submit,
    grow,
    grow,
    shrink,
    report,
    bring_up,
    change_host,
    hold,
    turn,
    turn,
]


def _some_running(draw: st.DrawFn, world: World) -> int | None:
    running = [job.id for job in world.jobs.values() if job.state == "running"]
    return draw(st.sampled_from(running)) if running else None


@given(worlds(), POLICIES)
def test_every_decision_of_a_plan_holds_when_nothing_moved(world: World, policy: Policy) -> None:
    plan_ = plan(world.picture(), policy, world.now)
    outcomes = world.applied(plan_).outcomes
    assert all(outcome.accepted for outcome in outcomes), (plan_, outcomes)


@given(worlds(), POLICIES)
def test_capacity_is_never_oversold(world: World, policy: Policy) -> None:
    """Summed up from the plan itself: the world would refuse what is too much."""
    plan_ = plan(world.picture(), policy, world.now)
    places = [decision for decision in plan_.decisions if isinstance(decision, Place)]
    others = tuple(decision for decision in plan_.decisions if not isinstance(decision, Place))
    world.applied(replace(plan_, decisions=others))
    used = world.used()
    for decision in places:
        job = world.jobs[world.requests[decision.request_id].job_id]
        for host_id, tasks in decision.hosts:
            used[host_id] = job.resources.taken_from(used[host_id], -tasks)
            assert world.hosts[host_id].is_schedulable
    for host in world.hosts.values():
        assert min(used[host.id].taken_from(host.capacity, 1)) >= 0, host


@given(worlds(), POLICIES)
def test_bounds_and_spans_hold_for_what_a_plan_gave(world: World, policy: Policy) -> None:
    before = {job_id: len(world.members(job_id)) for job_id in world.jobs}
    plan_ = plan(world.picture(), policy, world.now)
    world.applied(plan_)
    for decision in plan_.decisions:
        if not isinstance(decision, Place):
            continue
        request = world.requests[decision.request_id]
        job = world.jobs[request.job_id]
        tasks = sum(n for _, n in decision.hosts)
        assert request.tasks_min <= tasks <= request.tasks_max
        assert len(world.open_tasks(job.id)) <= job.max_tasks
        assert before[job.id] or request.kind == "start"
        on = Counter(task.host_id for task in world.open_tasks(job.id))
        assert job.span.per_host is None or max(on.values()) <= job.span.per_host
        assert not job.span.is_one_host or len(on) == 1
        names = {world.hosts[host_id].name for host_id, _ in decision.hosts}
        assert job.hosts is None or names <= set(job.hosts)
        assert not names & set(job.exclude_hosts)


@given(worlds(), POLICIES, st.randoms(use_true_random=False))
def test_a_plan_is_a_function_of_its_inputs(
    world: World, policy: Policy, dice: random.Random
) -> None:
    picture = world.picture()
    shuffled = {
        name: tuple(dice.sample(rows, len(rows)))
        for name in ("hosts", "jobs", "requests", "shrinks")
        if (rows := getattr(picture, name)) is not None
    }
    other: Snapshot = replace(picture, **shuffled)
    assert plan(other, policy, world.now) == plan(picture, policy, world.now)


@given(worlds(), POLICIES)
def test_planning_twice_without_a_change_plans_nothing(world: World, policy: Policy) -> None:
    first = plan(world.picture(), policy, world.now)
    world.applied(first)
    again = plan(world.picture(), policy, world.now)
    assert again.decisions == (), first.decisions


@given(worlds(), POLICIES)
def test_every_prefix_of_a_plan_applied_and_replanned_ends_in_the_same_place(
    world: World, policy: Policy
) -> None:
    whole = plan(world.picture(), policy, world.now)
    note(f"{whole.decisions}")
    end = deepcopy(world)
    end.applied(whole)
    for length in range(len(whole.decisions)):
        other = deepcopy(world)
        other.applied(replace(whole, decisions=whole.decisions[:length]))
        rest = plan(other.picture(), policy, other.now)
        other.applied(rest)
        assert other.state() == end.state(), (length, rest.decisions)


@given(worlds(), POLICIES)
def test_whatever_waits_has_a_reason(world: World, policy: Policy) -> None:
    world.applied(plan(world.picture(), policy, world.now))
    for request in world.requests.values():
        assert request.state != "pending" or request.reason


@given(worlds())
def test_under_strict_order_nobody_passes_one_that_waits_for_room(world: World) -> None:
    world.applied(plan(world.picture(), Policy("fcfs"), world.now))
    picture = world.picture()
    jobs = {job.id: job for job in picture.jobs}
    waiting = [
        (-jobs[r.job_id].priority, r.id)
        for r in picture.requests
        if r.reason in {"capacity", "span"}
    ]
    behind = [
        r.reason
        for r in picture.requests
        if waiting and (-jobs[r.job_id].priority, r.id) > min(waiting)
    ]
    assert not {"capacity", "span"} & set(behind) or len(waiting) == 1
