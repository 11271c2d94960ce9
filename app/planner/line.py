"""Giving room: starts and grows, one after the other."""

from datetime import datetime

from app.model import Policy, RequestView
from app.planner import reasons
from app.planner.draft import Draft
from app.planner.feasibility import (
    demand_of,
    exceeds_cluster,
    hosts_for,
    is_above_max_for_good,
    lacking,
    reason_not_yet,
)
from app.planner.placement import Demand, Hosts
from app.planner.policy import lets_others_pass
from app.planner.ranking import ranked_requests


def serve_line(draft: Draft, policy: Policy, now: datetime) -> None:
    """Commit what is placed, place what fits, cancel what never will, explain the rest.

    A job's second grow never passes its first (PROTOCOL 17), whatever the policy lets others do.
    """
    waiting: list[tuple[RequestView, Demand | str]] = []
    waiting_jobs: set[int] = set()
    is_blocked = False
    for request in ranked_requests(draft):
        if request.state == "placed":
            draft.commit(request)
        elif is_above_max_for_good(draft, request):
            draft.cancel(request, reasons.ABOVE_MAX)
        else:
            is_behind = is_blocked or request.job_id in waiting_jobs
            answer = _hosts_or_cause(draft, request, now, is_behind=is_behind)
            if isinstance(answer, tuple):
                draft.place(request, answer)
                continue
            waiting.append((request, answer))
            waiting_jobs.add(request.job_id)
            if isinstance(answer, Demand) and not lets_others_pass(policy):
                is_blocked = True
    # Told at the end, because what others took meanwhile may be the reason: told at once, the next
    # plan would correct it, and planning twice without a change would not plan nothing.
    for request, cause in waiting:
        draft.explain(request, cause if isinstance(cause, str) else lacking(draft, cause))


def _hosts_or_cause(
    draft: Draft, request: RequestView, now: datetime, *, is_behind: bool
) -> Hosts | Demand | str:
    """Hosts, or a demand that waits for room, or the reason why room would not help."""
    job = draft.jobs[request.job_id]
    not_yet = reason_not_yet(job, request, now)
    if not_yet is not None:
        return not_yet
    if is_behind:
        return reasons.ORDER
    demand = demand_of(draft, request)
    if isinstance(demand, str):
        return demand
    hosts = hosts_for(draft, demand)
    if hosts is None and exceeds_cluster(draft, demand, job):
        return reasons.EXCEEDS_CLUSTER
    return demand if hosts is None else hosts
