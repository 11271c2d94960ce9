"""What the names of policies mean.

`first_fit`: each in the order of the line takes what fits. `fcfs`: nobody passes one that waits for
room. One that its job, a date or the size of the cluster keeps waiting blocks nobody in either.
"""

from app.model import Policy
from app.planner import reasons


def blocks_those_behind(policy: Policy, reason: str) -> bool:
    """Whether a request that waits for `reason` keeps all behind it waiting."""
    return policy.order == "fcfs" and reason in {reasons.CAPACITY, reasons.SPAN}
