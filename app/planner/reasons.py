"""The words for why something waits, is given back or ends (INTERFACE §3)."""

CAPACITY = "capacity"
SPAN = "span"
EXCEEDS_CLUSTER = "exceeds_cluster"
ORDER = "order"
HELD = "held"
BEGIN_AT = "begin_at"
MAX_TASKS = "max_tasks"
NO_MEMBER = "no_member"
HOST_LOST = "host_lost"

HOST_UNFIT = "host_unfit"

DEADLINE = "deadline"
ABOVE_MAX = "above_max"
BELOW_MIN = "below_min"
NOTHING_TO_RELEASE = "nothing_to_release"
JOB_ENDED = "job_ended"


def after(request_id: int) -> str:
    """It waits until that request is settled."""
    return f"after #{request_id}"
