"""What a tick wants: decisions in the order to be tried, and what became of them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from msgspec import Struct


class Policy(Struct, frozen=True):
    """How the line is served; app.planner.policy says what the names mean."""

    order: Literal["first_fit", "fcfs"] = "first_fit"


class Place(Struct, frozen=True, gc=False, tag_field="do", tag="place"):
    """Hold `hosts` ((host id, tasks), the order of the task indexes) and, with `commit`, give them.

    `job_version` is the job's version once the stops of the same plan are done. Places of one job
    in one piece of a plan are judged together, so none of them counts for the next.
    """

    request_id: int
    request_version: int
    job_version: int
    hosts: tuple[tuple[int, int], ...]
    commit: bool = True


class Commit(Struct, frozen=True, gc=False, tag_field="do", tag="commit"):
    """Give a placed request what it holds."""

    request_id: int
    request_version: int


class Unplace(Struct, frozen=True, gc=False, tag_field="do", tag="unplace"):
    """Give the holds of a placed request back; it waits again."""

    request_id: int
    request_version: int
    reason: str


class Cancel(Struct, frozen=True, gc=False, tag_field="do", tag="cancel"):
    """End a pending or placed request of any kind."""

    request_id: int
    request_version: int
    reason: str


class Stop(Struct, frozen=True, gc=False, tag_field="do", tag="stop"):
    """Take the tasks that a shrink names out of the allocation."""

    request_id: int
    request_version: int


class Explain(Struct, frozen=True, gc=False, tag_field="do", tag="explain"):
    """Tell why a request waits; moves nothing."""

    request_id: int
    reason: str


Decision = Place | Commit | Unplace | Cancel | Stop | Explain


class Plan(Struct, frozen=True):
    """Decisions and what they were made from; as JSON it is what xce.apply_plan takes."""

    snapshot: str
    at: datetime
    policy: Policy
    decisions: tuple[Decision, ...] = ()

    def chunks(self, decisions_max: int) -> Iterator["Plan"]:
        """The same plan in pieces, in order; none where nothing was decided."""
        for start in range(0, len(self.decisions), decisions_max):
            piece = self.decisions[start : start + decisions_max]
            yield Plan(self.snapshot, self.at, self.policy, piece)


class Outcome(Struct, frozen=True, gc=False):
    """What became of one decision; `code` says why it was refused."""

    accepted: bool
    code: str | None = None


class Applied(Struct, frozen=True):
    """One outcome for each decision, in order, and the doorbells that were or should be rung."""

    outcomes: tuple[Outcome, ...]
    rings: tuple[str, ...] = ()
