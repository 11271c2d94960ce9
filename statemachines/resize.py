"""The lifecycles of resize requests (start, grow, shrink) and of the hook that may answer one."""

from dataclasses import replace

from statemachines.table import Edge, Lifecycle, State, each, same

_ANYONE = "owner|operator|job|controller"

GROW = Lifecycle(
    "grow",
    (
        State("none", "nobody", "not asked for yet"),
        State("pending", "controller", "accepted, waits until it can be placed"),
        State(
            "placed",
            "controller",
            "capacity is held on named hosts; nothing runs on it",
            holds_capacity=True,
        ),
        State("committed", "worker", "its tasks are in the allocation and start"),
        State("running", "nobody", "enough of its tasks came up", is_terminal=True),
        State("cancelled", "nobody", "ended before anything of it ran", is_terminal=True),
        State("failed", "nobody", "its minimum could not come up", is_terminal=True),
    ),
    (
        Edge("none", "ask", "pending", _ANYONE, "accepted within the job's bounds"),
        Edge(
            "pending",
            "place",
            "placed",
            "controller",
            "the hosts are fit and the job's maximum allows it",
        ),
        Edge("placed", "commit", "committed", "controller", "the job agreed; workers may start"),
        Edge(
            "placed",
            "unplace",
            "pending",
            _ANYONE,
            "a held host is no longer fit, or the bounds moved",
        ),
        *each(
            "pending|placed",
            "cancel",
            "cancelled",
            _ANYONE,
            "nobody needs it any more, or it can never fit",
        ),
        Edge(
            "committed",
            "started",
            "running",
            "controller",
            "every task is decided and at least min came up",
        ),
        Edge(
            "committed",
            "fail",
            "failed",
            "controller|owner|operator",
            "min is out of reach, or the job ends",
        ),
        *same("pending|committed", "amend", _ANYONE, "cancelled in part, or a task was withdrawn"),
    ),
)

#: The first allocation of an attempt travels like a grow, as a kind of its own.
START = replace(GROW, name="start")

SHRINK = Lifecycle(
    "shrink",
    (
        State("none", "nobody", "not asked for yet"),
        State("pending", "controller", "accepted, its tasks are reserved"),
        State("stopping", "worker", "its tasks left the allocation and are being stopped"),
        State("released", "nobody", "none of its tasks has a process any more", is_terminal=True),
        State("cancelled", "nobody", "ended before it stopped anything", is_terminal=True),
    ),
    (
        Edge("none", "ask", "pending", _ANYONE, "accepted within the job's bounds"),
        Edge(
            "pending",
            "stop",
            "stopping",
            "controller",
            "enough running tasks stay; the named ones leave",
        ),
        Edge(
            "pending",
            "cancel",
            "cancelled",
            _ANYONE,
            "withdrawn, vetoed, or nothing left to release",
        ),
        *same("pending", "amend", _ANYONE, "cancelled in part, or a named task ended by itself"),
        Edge("stopping", "released", "released", "controller", "no task of it may have a process"),
    ),
)

HOOK = Lifecycle(
    "hook",
    (
        State("none", "nobody", "not wanted yet"),
        State("wanted", "worker", "the head task's host should run it"),
        State("running", "worker", "it was claimed and may have a process"),
        State("ended", "nobody", "answered, or given up", is_terminal=True),
    ),
    (
        Edge("none", "want", "wanted", "controller", "the request waits for the job's word"),
        Edge("wanted", "start", "running", "worker", "claimed before the fork"),
        Edge("running", "answered", "ended", "worker", "it exited"),
        *each(
            "wanted|running",
            "timed_out",
            "ended",
            "controller",
            "no answer in time: the job's default counts",
        ),
        *each(
            "wanted|running", "cancelled", "ended", "controller", "its request moved on without it"
        ),
        *each("wanted|running", "lost", "ended", "controller", "its host is lost"),
    ),
)
