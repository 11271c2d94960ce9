"""What may come next of a request, who has to move, and why: asked of its state machine."""

from functools import cache
from typing import Any

from app.wire.resizes import Next, Resize
from statemachines import GROW, SHRINK, START, Lifecycle
from statemachines.machine import machine

LIFECYCLES: dict[str, Lifecycle] = {table.name: table for table in (START, GROW, SHRINK)}


@cache
def next_of(kind: str, state: str) -> Next:
    """The events that a request of this kind may still see; none when it is final."""
    table = LIFECYCLES[kind]
    subject = machine(table, initial=state)
    found = table.by_name[state]
    return Next(may=tuple(subject.get_triggers(state)), waits_on=found.waits_on, why=found.why)


def resize_of(*, kind: Any, state: Any, **columns: Any) -> Resize:
    """A request of its columns, with what may come next."""
    return Resize(kind=kind, state=state, next=next_of(kind, state), **columns)
