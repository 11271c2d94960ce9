"""The lifecycle of a task: one process tree of a job on one host."""

from statemachines.table import Edge, Lifecycle, State, each

_BACK = "controller|owner|operator"

TASK = Lifecycle(
    "task",
    (
        State("none", "nobody", "not in the allocation yet"),
        State(
            "assigned", "worker", "its host should start it; it has no process", holds_capacity=True
        ),
        State("starting", "worker", "claimed: it may have a process", holds_capacity=True),
        State("running", "nobody", "exec succeeded", holds_capacity=True),
        State("stopping", "worker", "its process tree is being ended", holds_capacity=True),
        State("ended", "nobody", "known to have no process", is_terminal=True),
    ),
    (
        Edge("none", "assign", "assigned", "controller", "its request was committed"),
        Edge("assigned", "start", "starting", "worker", "the claim, committed before the fork"),
        Edge("assigned", "withdraw", "ended", _BACK, "taken back before it could have a process"),
        Edge("starting", "up", "running", "worker", "exec succeeded"),
        *each("starting|running", "stop", "stopping", _BACK, "shrink, rollback, kill or requeue"),
        *each("starting|running|stopping", "gone", "ended", "worker", "no process of it is left"),
        *each(
            "starting|running|stopping",
            "lost",
            "ended",
            "controller",
            "its host is lost and the fence expired",
        ),
    ),
)
