"""Giving room: starts and grows, one after the other."""

from datetime import datetime

from app.model import Policy, RequestView
from app.planner import reasons
from app.planner.draft import Draft
from app.planner.feasibility import demand_of, hosts_or_reason, is_above_max_for_good
from app.planner.placement import Hosts
from app.planner.policy import blocks_those_behind
from app.planner.ranking import ranked_requests


def serve_line(draft: Draft, policy: Policy, now: datetime) -> None:
    """Commit what is placed, place what fits, cancel what never will, explain the rest.

    A job's second grow never passes its first (PROTOCOL 17), whatever the policy lets others do.
    """
    is_blocked = False
    waiting: set[int] = set()
    for request in ranked_requests(draft):
        if request.state == "placed":
            draft.commit(request)
            continue
        if is_above_max_for_good(draft, request):
            draft.cancel(request, reasons.ABOVE_MAX)
            continue
        is_behind = is_blocked or request.job_id in waiting
        answer = _hosts_or_reason(draft, request, now, is_behind=is_behind)
        if isinstance(answer, str):
            draft.explain(request, answer)
            waiting.add(request.job_id)
            is_blocked = is_blocked or blocks_those_behind(policy, answer)
        else:
            draft.place(request, answer)


def _hosts_or_reason(
    draft: Draft, request: RequestView, now: datetime, *, is_behind: bool
) -> Hosts | str:
    job = draft.jobs[request.job_id]
    if job.view.held:
        return reasons.HELD
    if job.view.begin_at is not None and job.view.begin_at > now:
        return reasons.BEGIN_AT
    if request.kind == "grow" and job.members == 0:
        return reasons.NO_MEMBER
    if is_behind:
        return reasons.ORDER
    demand = demand_of(draft, request)
    return demand if isinstance(demand, str) else hosts_or_reason(draft, demand)
