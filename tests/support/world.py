"""A world in memory for the planner's tests: a Store whose rows move by the lifecycle tables.

It judges each decision again, like the database, and fires what follows only when told to.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from app.model import (
    Applied,
    Cancel,
    Commit,
    Decision,
    Explain,
    Host,
    JobView,
    Outcome,
    Place,
    Plan,
    RequestView,
    Resources,
    ShrinkView,
    Snapshot,
    Stop,
    Unplace,
)
from statemachines import GROW, JOB, SHRINK, START, TASK, Lifecycle

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MEMBERS = ("assigned", "starting", "running")
OPEN = (*MEMBERS, "stopping")
REQUESTS: dict[str, Lifecycle] = {"start": START, "grow": GROW, "shrink": SHRINK}


@dataclass
class HostRow:
    id: int
    name: str
    capacity: Resources
    labels: tuple[tuple[str, str], ...] = ()
    state: str = "up"
    is_drain_wanted: bool = False
    is_fresh: bool = True

    @property
    def is_schedulable(self) -> bool:
        return self.state == "up" and not self.is_drain_wanted and self.is_fresh


@dataclass
class TaskRow:
    id: int
    job_id: int
    host_id: int
    request_id: int
    state: str = "none"
    shrink_id: int | None = None
    version: int = 0


@dataclass
class RequestRow:
    id: int
    job_id: int
    kind: str
    state: str = "none"
    version: int = 0
    tasks_min: int = 1
    tasks_max: int = 1
    reason: str | None = None
    terms: dict[str, Any] = field(default_factory=dict)
    holds: dict[int, int] = field(default_factory=dict)


class Refused(Exception):
    """The code of a decision that does not hold."""


@dataclass
class World:
    """All rows. Ids are given in the order of asking."""

    now: datetime = NOW
    hosts: dict[int, HostRow] = field(default_factory=dict)
    jobs: dict[int, JobView] = field(default_factory=dict)
    requests: dict[int, RequestRow] = field(default_factory=dict)
    tasks: dict[int, TaskRow] = field(default_factory=dict)

    # What users, operators and workers do --------------------------------------------------------

    def add_host(self, name: str, cpus: int, mem_mib: int = 0, gpus: int = 0, **labels: str) -> int:
        host_id = len(self.hosts) + 1
        capacity = Resources(cpus, mem_mib, gpus)
        self.hosts[host_id] = HostRow(host_id, name, capacity, tuple(sorted(labels.items())))
        return host_id

    def host(self, name: str) -> HostRow:
        return next(host for host in self.hosts.values() if host.name == name)

    def submit(self, tasks: int = 1, *, least: int | None = None, **terms: Any) -> int:
        """A job whose start asks for `least` (or exactly) `tasks`."""
        job_id = len(self.jobs) + 1
        least = tasks if least is None else least
        defaults = {"min_tasks": 1, "max_tasks": max(tasks, 1000), "resources": Resources(1)}
        self.jobs[job_id] = JobView(job_id, 1, "pending", **{**defaults, **terms})
        self._ask(RequestRow(0, job_id, "start", tasks_min=least, tasks_max=tasks))
        return job_id

    def grow(self, job_id: int, tasks: int, *, least: int | None = None, **terms: Any) -> int:
        least = tasks if least is None else least
        return self._ask(
            RequestRow(0, job_id, "grow", tasks_min=least, tasks_max=tasks, terms=terms)
        )

    def shrink(self, job_id: int, tasks: Iterable[int], **terms: Any) -> int:
        """Name tasks by id."""
        request_id = self._ask(RequestRow(0, job_id, "shrink", terms=terms))
        for task_id in tasks:
            self.tasks[task_id].shrink_id = request_id
        return request_id

    def hold(self, job_id: int, held: bool = True) -> None:
        self._change_job(job_id, held=held)

    def report(self, task_id: int, event: str) -> None:
        self._move(self.tasks[task_id], TASK, event, "worker")

    def bring_up(self, *job_ids: int) -> None:
        """Every member of these jobs runs, and what follows from that."""
        for task in self.tasks.values():
            if task.job_id in job_ids and task.state == "assigned":
                self.report(task.id, "start")
            if task.job_id in job_ids and task.state == "starting":
                self.report(task.id, "up")
        self.settle()

    def settle(self) -> None:
        """Fire what follows from the tasks' states."""
        for request in self.requests.values():
            tasks = [t for t in self.tasks.values() if t.request_id == request.id]
            if request.state == "committed" and not any(
                t.state in {"assigned", "starting"} for t in tasks
            ):
                self._move(request, REQUESTS[request.kind], "started", "controller")
            named = [t for t in self.tasks.values() if t.shrink_id == request.id]
            if request.state == "stopping" and all(t.state == "ended" for t in named):
                self._move(request, SHRINK, "released", "controller")

    # Looking -------------------------------------------------------------------------------------

    def members(self, job_id: int) -> list[TaskRow]:
        return [t for t in self.tasks.values() if t.job_id == job_id and t.state in MEMBERS]

    def open_tasks(self, job_id: int) -> list[TaskRow]:
        return [t for t in self.tasks.values() if t.job_id == job_id and t.state in OPEN]

    def where(self, job_id: int) -> dict[str, int]:
        """Members by host name."""
        return dict(Counter(self.hosts[task.host_id].name for task in self.members(job_id)))

    def used(self) -> dict[int, Resources]:
        """What tasks and holds use of each host, counted anew."""
        claims: dict[int, Counter[int]] = defaultdict(Counter)
        for task in self.tasks.values():
            if task.state in OPEN:
                claims[task.host_id][task.job_id] += 1
        for request in self.requests.values():
            for host_id, tasks in request.holds.items():
                claims[host_id][request.job_id] += tasks
        used = dict.fromkeys(self.hosts, Resources(0))
        for host_id, by_job in claims.items():
            for job_id, tasks in by_job.items():
                used[host_id] = self.jobs[job_id].resources.taken_from(used[host_id], -tasks)
        return used

    def state(self) -> Any:
        """All that must be equal for two worlds to be in the same place."""
        return (
            {r.id: (r.state, r.reason, r.holds) for r in self.requests.values()},
            {j.id: j.state for j in self.jobs.values()},
            sorted((t.job_id, t.request_id, t.host_id, t.state) for t in self.tasks.values()),
        )

    # The Store -----------------------------------------------------------------------------------

    async def snapshot(self) -> Snapshot:
        return self.picture()

    async def apply(self, plan: Plan) -> Applied:
        return self.applied(plan)

    def picture(self) -> Snapshot:
        waiting = [r for r in self.requests.values() if r.state in {"pending", "placed"}]
        used = self.used()
        return Snapshot(
            taken="1:1:",
            at=self.now,
            hosts=tuple(
                Host(
                    h.id,
                    h.name,
                    h.capacity,
                    used[h.id].taken_from(h.capacity, 1),
                    h.is_schedulable,
                    h.state != "draining" and not h.is_drain_wanted,
                    h.labels,
                )
                for h in self.hosts.values()
                if h.state in {"joining", "up", "draining", "lost"}
            ),
            jobs=tuple(self._job_view(job_id) for job_id in sorted({r.job_id for r in waiting})),
            requests=tuple(self._request_view(r) for r in waiting if r.kind != "shrink"),
            shrinks=tuple(self._shrink_view(r) for r in waiting if r.kind == "shrink"),
        )

    def applied(self, plan: Plan) -> Applied:
        """What gives back goes first, as in the database."""
        outcomes: dict[int, Outcome] = {}
        numbered = list(enumerate(plan.decisions))
        places = [(n, d) for n, d in numbered if isinstance(d, Place | Commit)]
        for n, decision in numbered:
            if not isinstance(decision, Place | Commit):
                outcomes[n] = self._outcome(decision, {})
        believed = {job.id: job.version for job in self.jobs.values()}
        for n, decision in places:
            outcomes[n] = self._outcome(decision, believed)
        return Applied(tuple(outcomes[n] for n, _ in numbered))

    # Inside --------------------------------------------------------------------------------------

    def _outcome(self, decision: Decision, versions: dict[int, int]) -> Outcome:
        request = self.requests[decision.request_id]
        if isinstance(decision, Explain):
            request.reason = decision.reason
            return Outcome(True)
        try:
            self._try(request, decision, versions)
        except Refused as refused:
            return Outcome(False, str(refused))
        return Outcome(True)

    def _try(self, request: RequestRow, decision: Decision, versions: dict[int, int]) -> None:
        if request.version != decision.request_version:
            raise Refused("version")
        match decision:
            case Place():
                if decision.job_version != versions[request.job_id]:
                    raise Refused("version")
                self._place(request, dict(decision.hosts), is_commit=decision.commit)
            case Commit():
                self._judge_bounds(request, {})
                self._judge_hosts(request, {})
                self._commit(request)
            case Unplace():
                self._give_up(request, "unplace", decision.reason)
            case Cancel():
                self._give_up(request, "cancel", decision.reason)
            case Stop():
                self._stop(request)

    def _place(self, request: RequestRow, hosts: dict[int, int], *, is_commit: bool) -> None:
        self._judge_bounds(request, hosts)
        self._judge_hosts(request, hosts)
        self._move(request, REQUESTS[request.kind], "place", "controller")
        request.holds = hosts
        if is_commit:
            self._commit(request)

    def _give_up(self, request: RequestRow, event: str, reason: str) -> None:
        self._move(request, REQUESTS[request.kind], event, "controller")
        request.holds, request.reason = {}, reason
        for task in self.tasks.values():
            if task.shrink_id == request.id:
                task.shrink_id = None

    def _judge_bounds(self, request: RequestRow, hosts: dict[int, int]) -> None:
        job = self.jobs[request.job_id]
        if job.held:
            raise Refused("held")
        held = sum(sum(r.holds.values()) for r in self.requests.values() if r.job_id == job.id)
        if len(self.open_tasks(job.id)) + held + sum(hosts.values()) > job.max_tasks:
            raise Refused("bounds")
        if hosts and not request.tasks_min <= sum(hosts.values()) <= request.tasks_max:
            raise Refused("bounds")
        if request.kind == "grow" and not self.members(job.id):
            raise Refused("bounds")

    def _judge_hosts(self, request: RequestRow, hosts: dict[int, int]) -> None:
        if not all(self.hosts[host_id].is_schedulable for host_id in hosts or request.holds):
            raise Refused("host")
        resources = self.jobs[request.job_id].resources
        used = self.used()
        for host_id, tasks in hosts.items():
            free = used[host_id].taken_from(self.hosts[host_id].capacity, 1)
            if min(resources.taken_from(free, tasks)) < 0:
                raise Refused("capacity")

    def _commit(self, request: RequestRow) -> None:
        self._move(request, REQUESTS[request.kind], "commit", "controller")
        for host_id, tasks in request.holds.items():
            for _ in range(tasks):
                task = TaskRow(len(self.tasks) + 1, request.job_id, host_id, request.id)
                self._move(task, TASK, "assign", "controller")
                self.tasks[task.id] = task
        request.holds = {}
        job = self.jobs[request.job_id]
        if request.kind == "start":
            target = JOB.edge(job.state, "start", "controller").target
            self._change_job(job.id, state=target)
        else:
            self._change_job(job.id)

    def _stop(self, shrink: RequestRow) -> None:
        view = self._shrink_view(shrink)
        job = self._job_view(shrink.job_id)
        if view.named_running and job.firm_tasks - view.named_firm < job.min_tasks:
            raise Refused("below_min")
        self._move(shrink, SHRINK, "stop", "controller")
        for task in self.tasks.values():
            if task.shrink_id == shrink.id and task.state in MEMBERS:
                event = "withdraw" if task.state == "assigned" else "stop"
                self._move(task, TASK, event, "controller")
        self._change_job(shrink.job_id)

    def _ask(self, request: RequestRow) -> int:
        request.id = len(self.requests) + 1
        self._move(request, REQUESTS[request.kind], "ask", "owner")
        self.requests[request.id] = request
        return request.id

    def _move(self, row: RequestRow | TaskRow, table: Lifecycle, event: str, actor: str) -> None:
        row.state = table.edge(row.state, event, actor).target
        row.version += 1

    def _change_job(self, job_id: int, **changes: Any) -> None:
        job = self.jobs[job_id]
        self.jobs[job_id] = replace(job, version=job.version + 1, **changes)

    def _is_firm(self, task: TaskRow) -> bool:
        request = self.requests[task.request_id]
        return (
            task.state == "running"
            and self.hosts[task.host_id].state not in {"lost", "joining"}
            and not (request.kind == "grow" and request.state == "committed")
        )

    def _job_view(self, job_id: int) -> JobView:
        on: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for task in self.open_tasks(job_id):
            on[task.host_id][0 if task.state in MEMBERS else 1] += 1
        committed = [
            r.id for r in self.requests.values() if r.job_id == job_id and r.state == "committed"
        ]
        members = len(self.members(job_id))
        return replace(
            self.jobs[job_id],
            members=members,
            leaving=len(self.open_tasks(job_id)) - members,
            tasks_on=tuple((host_id, *counts) for host_id, counts in sorted(on.items())),
            firm_tasks=sum(map(self._is_firm, self.members(job_id))),
            unsettled_id=min(committed, default=None),
        )

    def _request_view(self, request: RequestRow) -> RequestView:
        return RequestView(
            request.id,
            request.version,
            request.job_id,
            request.kind,
            request.state,
            request.tasks_min,
            request.tasks_max,
            reason=request.reason,
            holds=tuple(sorted(request.holds.items())),
            **request.terms,
        )

    def _shrink_view(self, request: RequestRow) -> ShrinkView:
        named = [t for t in self.tasks.values() if t.shrink_id == request.id and t.state in MEMBERS]
        on: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for task in named:
            on[task.host_id][0 if task.state == "assigned" else 1] += 1
        return ShrinkView(
            request.id,
            request.version,
            request.job_id,
            tuple((host_id, *counts) for host_id, counts in sorted(on.items())),
            named_running=sum(t.state == "running" for t in named),
            named_firm=sum(map(self._is_firm, named)),
            reason=request.reason,
            **request.terms,
        )
