"""The working copy of a snapshot that one plan changes with every decision it takes.

It keeps to what the database does with each decision, so that the rest of a plan is what a new
plan would be if only the first part of this one were applied.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from app.model import (
    Cancel,
    Commit,
    Decision,
    Explain,
    Host,
    JobView,
    Place,
    RequestView,
    ShrinkView,
    Snapshot,
    Stop,
    Unplace,
)
from app.planner.fleet import Fleet
from app.planner.placement import Demand, Hosts


@dataclass(slots=True)
class JobDraft:
    """A job as the plan leaves it so far; `named` members are named by a pending shrink.

    Where its tasks are stays in the view; `own_more` and `staying_more` are what the plan and the
    holds add to that, so that a job with a thousand hosts is not copied for a grow of one task.
    """

    view: JobView
    version: int
    firm: int
    members: int
    leaving: int
    held: int = 0
    named: int = 0
    own_more: Counter[int] = field(default_factory=Counter)
    staying_more: Counter[int] = field(default_factory=Counter)

    @property
    def tasks(self) -> int:
        """What counts against the maximum (R2)."""
        return self.members + self.leaving + self.held

    def own(self) -> Hosts:
        """Open tasks and holds by host id."""
        return _added({host: m + leaving for host, m, leaving in self.view.tasks_on}, self.own_more)

    def staying(self) -> Hosts:
        """Members and holds by host id."""
        return _added({host: m for host, m, _ in self.view.tasks_on}, self.staying_more)

    def add(self, host_id: int, tasks: int) -> None:
        self.own_more[host_id] += tasks
        self.staying_more[host_id] += tasks


def _added(tasks: dict[int, int], more: Counter[int]) -> Hosts:
    for host_id, count in more.items():
        tasks[host_id] = tasks.get(host_id, 0) + count
    return tuple(sorted((host_id, count) for host_id, count in tasks.items() if count))


class Draft:
    """Owned by one call of plan(); its methods record a decision and do what it will do."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.decisions: list[Decision] = []
        self.requests: dict[int, RequestView] = {r.id: r for r in snapshot.requests}
        self.shrinks: dict[int, ShrinkView] = {s.id: s for s in snapshot.shrinks}
        self.jobs: dict[int, JobDraft] = {
            job.id: JobDraft(job, job.version, job.firm_tasks, job.members, job.leaving)
            for job in snapshot.jobs
        }
        self.now = Fleet((h.id, h.free, h.labels) for h in snapshot.hosts if h.is_schedulable)
        self.failed: set[Demand] = set()
        self._hosts: tuple[Host, ...] = snapshot.hosts
        for request in snapshot.requests:
            self._hold(request, request.holds)
        for shrink in snapshot.shrinks:
            self.jobs[shrink.job_id].named += sum(a + s for _, a, s in shrink.named_on)

    @cached_property
    def empty(self) -> Fleet:
        """The cluster as configured and in use, without anybody's tasks."""
        in_use = (h for h in self._hosts if h.is_in_use)
        return Fleet(((h.id, h.capacity, h.labels) for h in in_use), is_empty=True)

    @cached_property
    def host_ids(self) -> dict[str, int]:
        return {host.name: host.id for host in self._hosts}

    def place(self, request: RequestView, hosts: Hosts) -> None:
        job = self.jobs[request.job_id]
        self.decisions.append(Place(request.id, request.version, job.version, hosts))
        for host_id, tasks in hosts:
            self.now.take(host_id, job.view.resources, tasks)
        self._commit(request, hosts)

    def commit(self, request: RequestView) -> None:
        self.decisions.append(Commit(request.id, request.version))
        self._release(request)
        self._commit(request, request.holds)

    def unplace(self, request: RequestView, reason: str) -> None:
        self.decisions.append(Unplace(request.id, request.version, reason))
        self._give_back(request)
        # An edge raises a row's version by one: what waits again may be placed in the same plan.
        self.requests[request.id] = replace(
            request, version=request.version + 1, state="pending", holds=(), reason=reason
        )

    def cancel(self, request: RequestView | ShrinkView, reason: str) -> None:
        self.decisions.append(Cancel(request.id, request.version, reason))
        if isinstance(request, ShrinkView):
            self._drop(request)
        else:
            self._give_back(request)
            del self.requests[request.id]

    def stop(self, shrink: ShrinkView) -> None:
        job = self.jobs[shrink.job_id]
        self.decisions.append(Stop(shrink.id, shrink.version))
        self._drop(shrink)
        job.version += 1
        job.firm -= shrink.named_firm
        for host_id, assigned, started in shrink.named_on:
            job.members -= assigned + started
            job.leaving += started
            job.staying_more[host_id] -= assigned + started
            job.own_more[host_id] -= assigned
            # A withdrawn task never had a process: its room is free in the same transaction.
            self.now.take(host_id, job.view.resources, -assigned)

    def explain(self, request: RequestView | ShrinkView, reason: str) -> None:
        """Nothing is decided where that is what the request says already."""
        if request.reason != reason:
            self.decisions.append(Explain(request.id, reason))

    def _commit(self, request: RequestView, hosts: Hosts) -> None:
        job = self.jobs[request.job_id]
        for host_id, tasks in hosts:
            job.add(host_id, tasks)
            job.members += tasks
        del self.requests[request.id]

    def _give_back(self, request: RequestView) -> None:
        for host_id, tasks in request.holds:
            self.now.take(host_id, self.jobs[request.job_id].view.resources, -tasks)
        self._release(request)

    def _release(self, request: RequestView) -> None:
        self._hold(request, tuple((host_id, -tasks) for host_id, tasks in request.holds))

    def _hold(self, request: RequestView, holds: Hosts) -> None:
        job = self.jobs[request.job_id]
        for host_id, tasks in holds:
            job.add(host_id, tasks)
            job.held += tasks

    def _drop(self, shrink: ShrinkView) -> None:
        self.jobs[shrink.job_id].named -= sum(a + s for _, a, s in shrink.named_on)
        del self.shrinks[shrink.id]
