"""The lifecycle of a job."""

from statemachines.table import Edge, Lifecycle, State, same

_BACK = "owner|operator|controller"
_OPEN = "pending|running|stopping"

JOB = Lifecycle(
    "job",
    (
        State("none", "nobody", "not submitted yet"),
        State("pending", "controller", "its start waits to be placed"),
        State("running", "nobody", "it has an allocation"),
        State("stopping", "worker", "its tasks are being stopped"),
        State("done", "nobody", "ended with exit code 0", is_terminal=True),
        State("exited", "nobody", "ended in any other way", is_terminal=True),
    ),
    (
        Edge("none", "submit", "pending", "owner|operator", "accepted"),
        Edge("pending", "start", "running", "controller", "its start is committed"),
        Edge("pending", "ended", "exited", _BACK, "killed before it ran"),
        Edge(
            "running",
            "stop",
            "stopping",
            _BACK,
            "kill, run limit, no member left, head ended or start failed",
        ),
        Edge("running", "requeue", "stopping", _BACK, "it runs again once its last task has ended"),
        Edge(
            "stopping", "stop", "stopping", "owner|operator", "a kill overrides a waiting requeue"
        ),
        Edge(
            "stopping",
            "requeued",
            "pending",
            "controller",
            "the last task has ended; a new attempt begins",
        ),
        Edge(
            "stopping",
            "completed",
            "done",
            "controller",
            "the last task has ended with exit code 0",
        ),
        Edge(
            "stopping",
            "ended",
            "exited",
            "controller",
            "the last task has ended, any other outcome",
        ),
        *same(_OPEN, "hold", _BACK, "nothing new of it is placed"),
        *same(_OPEN, "release", _BACK, "a hold ends"),
        *same(_OPEN, "amend", _BACK, "its terms changed"),
    ),
)
