"""What should happen: (snapshot, policy, now) to a plan; pure."""

from datetime import datetime

from app.model import Plan, Policy, Snapshot
from app.planner.draft import Draft
from app.planner.line import serve_line
from app.planner.overdue import cancel_overdue
from app.planner.reclaim import settle_shrinks, unplace_unfit

__all__ = ["plan"]


def plan(snapshot: Snapshot, policy: Policy, now: datetime) -> Plan:
    """What to do about what waits; the same for the same arguments, in whatever order they come.

    Room is given back before any is given, so that applying only the first part of a plan and
    planning again leads to the same place as applying all of it.
    """
    draft = Draft(snapshot)
    cancel_overdue(draft, now)
    settle_shrinks(draft)
    unplace_unfit(draft, now)
    serve_line(draft, policy, now)
    return Plan(snapshot.taken, now, policy, tuple(draft.decisions))
