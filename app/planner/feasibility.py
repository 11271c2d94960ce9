"""Whether a request fits now, where, and if not, why not."""

from msgspec.structs import replace

from app.model import RequestView, Span
from app.planner import reasons
from app.planner.draft import Draft
from app.planner.placement import Demand, Hosts, chosen_hosts


def hosts_or_reason(draft: Draft, demand: Demand) -> Hosts | str:
    """The hosts for a demand, or why it has to wait.

    What failed is remembered: within a plan room is given back only before anything is placed.
    """
    failed = draft.failed.get(demand)
    if failed is not None:
        return failed
    hosts = chosen_hosts(demand, draft.now.rooms(demand.shape))
    if hosts is None:
        draft.failed[demand] = reason = _why_not(draft, demand)
        return reason
    return hosts


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
    return Demand(
        resources=view.resources,
        minimum=minimum,
        maximum=maximum,
        constraints=view.constraints,
        span=view.span,
        existing_hosts=request.existing_hosts or view.existing_hosts,
        own=job.own(),
        staying=job.staying(),
        named=_named(draft, view.hosts, request.hosts),
        excluded=_ids(draft, (*view.exclude_hosts, *request.exclude_hosts)),
    )


def is_above_max_for_good(draft: Draft, request: RequestView) -> bool:
    """Whether not even the end of all that leaves makes room below the maximum (PROTOCOL 14)."""
    job = draft.jobs[request.job_id]
    staying = job.members - job.named + job.held
    return staying + max(1, request.tasks_min) > job.view.max_tasks


def _why_not(draft: Draft, demand: Demand) -> str:
    if chosen_hosts(demand, draft.empty.rooms(demand.shape)) is None:
        return reasons.EXCEEDS_CLUSTER
    anywhere = replace(demand, span=Span())
    if demand.span != Span() and chosen_hosts(anywhere, draft.now.rooms(demand.shape)) is not None:
        return reasons.SPAN
    return reasons.CAPACITY


def _named(draft: Draft, *names: tuple[str, ...] | None) -> frozenset[int] | None:
    """The hosts that job and request both allow; None where neither names any."""
    told = [_ids(draft, some) for some in names if some is not None]
    return frozenset.intersection(*told) if told else None


def _ids(draft: Draft, names: tuple[str, ...]) -> frozenset[int]:
    if not names:
        return frozenset()
    return frozenset(draft.host_ids[name] for name in names if name in draft.host_ids)
