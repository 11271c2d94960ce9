"""The shape of a lifecycle table: states, edges, look-ups; knows no lifecycle by name."""

from dataclasses import dataclass
from functools import cached_property

NONE = "none"
ACTORS = frozenset({"owner", "operator", "job", "controller", "worker"})
#: Who has to move next while a row is in a state; `nobody` where it is final or simply lives.
MOVERS = frozenset({"controller", "worker", "operator", "job", "nobody"})


class IllegalEdgeError(ValueError):
    """An event was asked for that the state does not know, or by an actor that may not fire it."""


@dataclass(frozen=True, slots=True)
class State:
    """One state of a row; `holds_capacity` says that slots of a host are kept for it."""

    name: str
    waits_on: str
    why: str
    holds_capacity: bool = False
    is_terminal: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """One legal move; `actors` is written `owner|operator`, `why` is shown to users."""

    source: str
    event: str
    target: str
    actors: str
    why: str

    @property
    def actor_names(self) -> tuple[str, ...]:
        return tuple(self.actors.split("|"))


@dataclass(frozen=True)
class Lifecycle:
    """All states and edges of one kind of row. `none` is where a row is before it exists."""

    name: str
    states: tuple[State, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        faults = well_formedness_faults(self)
        if faults:
            raise ValueError(f"lifecycle {self.name}: {'; '.join(faults)}")

    @cached_property
    def by_source_and_event(self) -> dict[tuple[str, str], Edge]:
        return {(edge.source, edge.event): edge for edge in self.edges}

    @cached_property
    def by_name(self) -> dict[str, State]:
        return {state.name: state for state in self.states}

    @cached_property
    def events(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(edge.event for edge in self.edges))

    def edge(self, source: str, event: str, actor: str) -> Edge:
        """The edge that `actor` fires; IllegalEdgeError where the table has none for it."""
        found = self.by_source_and_event.get((source, event))
        if found is None:
            raise IllegalEdgeError(f"{self.name}: no {event!r} in state {source!r}")
        if actor not in found.actor_names:
            raise IllegalEdgeError(f"{self.name}: {actor!r} may not {event!r} in state {source!r}")
        return found

    def events_from(self, source: str, actor: str) -> tuple[str, ...]:
        """What `actor` may do to a row in `source`, in the order of the table."""
        return tuple(e.event for e in self.edges if e.source == source and actor in e.actor_names)


def same(sources: str, event: str, actors: str, why: str) -> tuple[Edge, ...]:
    """Self-edges: they put into history what changes a row without moving it."""
    return tuple(Edge(source, event, source, actors, why) for source in sources.split("|"))


def each(sources: str, event: str, target: str, actors: str, why: str) -> tuple[Edge, ...]:
    """One edge for each of `sources`, written `starting|running`."""
    return tuple(Edge(source, event, target, actors, why) for source in sources.split("|"))


def well_formedness_faults(lifecycle: Lifecycle) -> list[str]:
    """What is wrong with a table; empty for a sound one."""
    names = [state.name for state in lifecycle.states]
    terminal = {state.name for state in lifecycle.states if state.is_terminal}
    faults = [f"state {n} twice" for n in set(names) if names.count(n) > 1]
    if NONE not in names:
        faults.append("no state `none`")
    faults += [
        f"{s.name} waits on {s.waits_on}" for s in lifecycle.states if s.waits_on not in MOVERS
    ]
    pairs = [(edge.source, edge.event) for edge in lifecycle.edges]
    faults += [f"{pair} leads to two places" for pair in set(pairs) if pairs.count(pair) > 1]
    for edge in lifecycle.edges:
        faults += _edge_faults(edge, set(names), terminal)
    faults += [
        f"{n} is never left" for n in set(names) - terminal - {e.source for e in lifecycle.edges}
    ]
    faults += [
        f"{n} is never entered" for n in set(names) - {NONE} - {e.target for e in lifecycle.edges}
    ]
    return sorted(faults)


def _edge_faults(edge: Edge, names: set[str], terminal: set[str]) -> list[str]:
    faults = [f"{edge}: unknown state {n}" for n in (edge.source, edge.target) if n not in names]
    if edge.source in terminal:
        faults.append(f"{edge}: leaves a final state")
    if edge.target == NONE:
        faults.append(f"{edge}: leads back to none")
    unknown = set(edge.actor_names) - ACTORS
    if unknown:
        faults.append(f"{edge}: unknown actors {sorted(unknown)}")
    return faults
