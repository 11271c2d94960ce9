"""The nouns that planner, stores and simulator share: frozen, without behaviour that decides."""

from app.model.capacity import NOTHING, Resources
from app.model.plan import (
    Applied,
    Cancel,
    Commit,
    Decision,
    Explain,
    Outcome,
    Place,
    Plan,
    Policy,
    Stop,
    Unplace,
)
from app.model.snapshot import (
    Constraint,
    Host,
    JobView,
    RequestView,
    ShrinkView,
    Snapshot,
    Span,
)

__all__ = [
    "NOTHING",
    "Applied",
    "Cancel",
    "Commit",
    "Constraint",
    "Decision",
    "Explain",
    "Host",
    "JobView",
    "Outcome",
    "Place",
    "Plan",
    "Policy",
    "RequestView",
    "Resources",
    "ShrinkView",
    "Snapshot",
    "Span",
    "Stop",
    "Unplace",
]
