"""What a world must offer to be scheduled: a frozen picture, and a try at a plan."""

from typing import Protocol

from app.model import Applied, Plan, Snapshot


class Store(Protocol):
    """The live world is app.db.pg_store, the simulated one keeps its rows in memory."""

    async def snapshot(self) -> Snapshot:
        """The world at one moment, with its own clock's time in `at`."""
        ...

    async def apply(self, plan: Plan) -> Applied:
        """Try each decision on its own, in order; one outcome for each. Doorbells ring after it."""
        ...
