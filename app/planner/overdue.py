"""Requests that nobody waits for any more. Chores cancel them too: this is the poll."""

from datetime import datetime

from app.model import RequestView, ShrinkView
from app.planner import reasons
from app.planner.draft import Draft

_ENDED = frozenset({"stopping", "done", "exited"})


def cancel_overdue(draft: Draft, now: datetime) -> None:
    """Cancel what is past its deadline or whose job ended. A committed grow has no deadline."""
    asked: list[RequestView | ShrinkView] = [*draft.requests.values(), *draft.shrinks.values()]
    for request in sorted(asked, key=lambda request: request.id):
        if request.deadline_at is not None and request.deadline_at <= now:
            draft.cancel(request, reasons.DEADLINE)
        elif draft.jobs[request.job_id].view.state in _ENDED:
            draft.cancel(request, reasons.JOB_ENDED)
