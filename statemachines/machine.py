"""A lifecycle as a `transitions` machine, for programs that hold one thing at a time."""

from typing import Any

from transitions import Machine

from statemachines.table import Lifecycle


class Subject:
    """What a machine moves: nothing but a state. `transitions` adds `trigger` and the events."""

    state: str
    trigger: Any


def machine(
    lifecycle: Lifecycle, subject: object | None = None, *, initial: str = "none"
) -> Machine:
    """A machine over `subject` (a new Subject where none is given); never a callback.

    Raises `transitions.MachineError` on an event that the state does not know. Actors are not
    checked here: ask `Lifecycle.edge` for that.
    """
    return Machine(
        model=Subject() if subject is None else subject,
        states=[state.name for state in lifecycle.states],
        transitions=[
            {"trigger": edge.event, "source": edge.source, "dest": edge.target}
            for edge in lifecycle.edges
        ],
        initial=initial,
        auto_transitions=False,
    )
