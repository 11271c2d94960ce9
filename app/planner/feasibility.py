"""Whether a request fits now, where, and if not, why not."""

from datetime import datetime

from msgspec.structs import replace

from app.model import RequestView, Span
from app.planner import reasons
from app.planner.draft import Draft, JobDraft
from app.planner.placement import Demand, Hosts, chosen_hosts


def hosts_for(draft: Draft, demand: Demand) -> Hosts | None:
    """The hosts for a demand, or None where it does not fit now.

    What failed is remembered: within a plan room is given back only before anything is placed.
    """
    if demand in draft.failed:
        return None
    hosts = chosen_hosts(demand, draft.now.rooms(demand.shape))
    if hosts is None:
        draft.failed.add(demand)
    return hosts


def exceeds_cluster(draft: Draft, demand: Demand, job: JobDraft) -> bool:
    """Whether a demand would not even fit if nobody else had a task, on the hosts in use."""
    if demand.is_plain:
        # What the job has on hosts that are drained takes no room from the others.
        beside = sum(tasks for host_id, tasks in job.staying() if host_id in draft.empty.amounts)
        demand = replace(demand, elsewhere=beside)
    return chosen_hosts(demand, draft.empty.rooms(demand.shape)) is None


def lacking(draft: Draft, demand: Demand) -> str:
    """What keeps a demand waiting that does not exceed the cluster: room, or its span."""
    anywhere = replace(demand, span=Span())
    if demand.span != Span() and chosen_hosts(anywhere, draft.now.rooms(demand.shape)) is not None:
        return reasons.SPAN
    return reasons.CAPACITY


def reason_not_yet(job: JobDraft, request: RequestView, now: datetime) -> str | None:
    """Why a job may not have anything placed or committed now, whatever room there is."""
    if job.view.held:
        return reasons.HELD
    if job.view.begin_at is not None and job.view.begin_at > now:
        return reasons.BEGIN_AT
    if request.kind == "grow" and job.members == 0:
        return reasons.NO_MEMBER
    return None


def demand_of(draft: Draft, request: RequestView) -> Demand | str:
    """What a pending request asks of the hosts, bounded by its job; a reason where that is nothing.

    Tasks that are still stopping and all holds count against the maximum (R2).
    """
    job = draft.jobs[request.job_id]
    view = job.view
    minimum = max(1, request.tasks_min)
    maximum = min(request.tasks_max, view.max_tasks - job.tasks)
    if maximum < minimum:
        return reasons.MAX_TASKS
    demand = Demand(
        resources=view.resources,
        minimum=minimum,
        maximum=maximum,
        constraints=view.constraints,
        span=view.span,
        existing_hosts=request.existing_hosts or view.existing_hosts,
        named=_named(draft, view.hosts, request.hosts),
        excluded=_ids(draft, (*view.exclude_hosts, *request.exclude_hosts)),
        elsewhere=job.members + job.held,
    )
    if demand.is_plain:
        return demand
    return replace(demand, own=job.own(), staying=job.staying(), elsewhere=0)


def is_above_max_for_good(draft: Draft, request: RequestView) -> bool:
    """Whether not even the end of all that leaves makes room below the maximum (PROTOCOL 14)."""
    job = draft.jobs[request.job_id]
    staying = job.members - job.named + job.held
    return staying + max(1, request.tasks_min) > job.view.max_tasks


def _named(draft: Draft, *names: tuple[str, ...] | None) -> frozenset[int] | None:
    """The hosts that job and request both allow; None where neither names any."""
    told = [_ids(draft, some) for some in names if some is not None]
    return frozenset.intersection(*told) if told else None


def _ids(draft: Draft, names: tuple[str, ...]) -> frozenset[int]:
    if not names:
        return frozenset()
    return frozenset(draft.host_ids[name] for name in names if name in draft.host_ids)
