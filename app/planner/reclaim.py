"""Giving back: shrinks that may stop their tasks, and holds that are no longer good."""

from datetime import datetime

from app.model import RequestView, ShrinkView
from app.planner import reasons
from app.planner.draft import Draft, JobDraft
from app.planner.feasibility import reason_not_yet


def settle_shrinks(draft: Draft) -> None:
    """Stop, cancel or explain each pending shrink, in the order accepted; they pass all grows."""
    for shrink in sorted(draft.shrinks.values(), key=lambda s: s.id):
        job = draft.jobs[shrink.job_id]
        if not shrink.named_on:
            draft.cancel(shrink, reasons.NOTHING_TO_RELEASE)
        elif _leaves_enough(job, shrink):
            draft.stop(shrink)
        elif _may_yet_leave_enough(job, shrink):
            draft.explain(shrink, _awaited(job))
        else:
            draft.cancel(shrink, reasons.BELOW_MIN)


def unplace_unfit(draft: Draft, now: datetime) -> None:
    """Give back the holds that may not be committed now, so that others can have the room."""
    waiting: set[int] = set()
    for request in sorted(draft.requests.values(), key=lambda r: r.id):
        reason = _unfit_because(draft, request, now)
        if request.state == "placed" and reason is None and request.job_id in waiting:
            # The one in front needs what this one holds, or they would wait for each other.
            reason = reasons.ORDER
        if request.state == "placed" and reason is not None:
            draft.unplace(request, reason)
        if draft.requests[request.id].state == "pending":
            waiting.add(request.job_id)


def _leaves_enough(job: JobDraft, shrink: ShrinkView) -> bool:
    """PROTOCOL 10: only what surely stays counts; taking what has not started is always allowed."""
    return shrink.named_running == 0 or job.firm - shrink.named_firm >= job.view.min_tasks


def _may_yet_leave_enough(job: JobDraft, shrink: ShrinkView) -> bool:
    named = sum(assigned + started for _, assigned, started in shrink.named_on)
    return job.members - named >= job.view.min_tasks and job.members - named > (
        job.firm - shrink.named_firm
    )


def _awaited(job: JobDraft) -> str:
    if job.view.unsettled_id is None:
        return reasons.HOST_LOST
    return reasons.after(job.view.unsettled_id)


def _unfit_because(draft: Draft, request: RequestView, now: datetime) -> str | None:
    job = draft.jobs[request.job_id]
    not_yet = reason_not_yet(job, request, now)
    if not_yet is not None:
        return not_yet
    if any(host_id not in draft.now.amounts for host_id, _ in request.holds):
        return reasons.HOST_UNFIT
    return reasons.MAX_TASKS if job.tasks > job.view.max_tasks else None
