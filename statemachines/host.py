"""The lifecycle of a host."""

from statemachines.table import Edge, Lifecycle, State, each, same

HOST = Lifecycle(
    "host",
    (
        State("none", "nobody", "not known yet"),
        State("joining", "worker", "its worker has to reconcile first"),
        State("up", "nobody", "takes tasks"),
        State("draining", "nobody", "takes nothing new, empties by itself"),
        State("lost", "worker", "silent; its tasks wait for evidence"),
        State("down", "operator", "out of use"),
        State("removed", "nobody", "gone for good", is_terminal=True),
    ),
    (
        Edge(
            "none",
            "register",
            "joining",
            "operator|worker",
            "added by an operator or by its first worker",
        ),
        Edge(
            "joining",
            "cleared",
            "up",
            "controller",
            "reconciled: nothing runs there without an open row",
        ),
        Edge("up", "drain", "draining", "controller", "the drain wish is set"),
        Edge("draining", "resume", "up", "operator", "the drain wish was taken back"),
        Edge("draining", "emptied", "down", "controller", "no open task and no hold is left"),
        Edge("down", "resume", "joining", "operator", "back into use"),
        *each(
            "joining|up|draining",
            "silent",
            "lost",
            "controller",
            "no heartbeat for the silent time",
        ),
        Edge("lost", "returned", "joining", "worker", "always a new incarnation"),
        Edge("lost", "retire", "down", "operator", "an operator vouches that it is off"),
        Edge("down", "remove", "removed", "operator", "final"),
        *same(
            "joining|up|draining|lost|down",
            "wish",
            "operator",
            "drain wanted or not, or another size",
        ),
    ),
)
