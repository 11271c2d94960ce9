"""One turn of the wheel: read, plan, apply, count. No clock, no sleep, no connection."""

from collections import Counter
from datetime import datetime

from msgspec import Struct

from app.model import Policy
from app.planner import plan
from app.scheduling.store import Store

#: A piece of a plan is one transaction; longer ones keep others waiting for their locks.
DECISIONS_MAX = 250


class TickReport(Struct, frozen=True):
    """What one tick did. `refused` counts by code."""

    decided: int
    accepted: int
    refused: dict[str, int]

    @property
    def is_due_again(self) -> bool:
        """Something was refused: what was planned on has moved, so look again at once.

        Whoever turns the wheel should wait for bell or poll all the same when nothing at all was
        accepted twice running, lest a disagreement about a rule becomes a busy loop.
        """
        return bool(self.refused)


async def tick(store: Store, policy: Policy, now: datetime | None = None) -> TickReport:
    """Decide once about everything that waits.

    Time is the store's own, taken with the snapshot, unless `now` says otherwise: the database's
    clock in the live world, the virtual one in the simulator.
    """
    snapshot = await store.snapshot()
    decided = plan(snapshot, policy, snapshot.at if now is None else now)
    accepted = 0
    refused: Counter[str] = Counter()
    for piece in decided.chunks(DECISIONS_MAX):
        for outcome in (await store.apply(piece)).outcomes:
            if outcome.accepted:
                accepted += 1
            else:
                refused[outcome.code or "unknown"] += 1
    return TickReport(len(decided.decisions), accepted, dict(sorted(refused.items())))
