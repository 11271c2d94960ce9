"""What the names of policies mean.

`first_fit`: each in the order of the line takes what fits. `fcfs`: nobody passes one that waits for
room. One that its job, a date or the size of the cluster keeps waiting blocks nobody in either.
"""

from app.model import Policy


def lets_others_pass(policy: Policy) -> bool:
    """Whether those behind may have what a request that waits for room cannot use yet."""
    return policy.order != "fcfs"
