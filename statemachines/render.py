"""Lifecycles as SQL rows and as mermaid diagrams; returns strings, writes no file."""

from collections.abc import Iterable

from statemachines.table import Edge, Lifecycle, State

_HEADER = """\
-- Printed from statemachines/ by `make generate`; never edited by hand.
-- A state or edge that left the table is retired by its flag, not deleted: history refers to it.
"""


def lifecycles_as_sql(lifecycles: Iterable[Lifecycle]) -> str:
    """Statements that make xce.state and xce.edge equal to the tables; safe to run again."""
    tables = tuple(lifecycles)
    states = ",\n".join(_state_row(table.name, state) for table in tables for state in table.states)
    edges = ",\n".join(_edge_row(table.name, edge) for table in tables for edge in table.edges)
    return f"""{_HEADER}
update xce.edge set retired = true;
update xce.state set retired = true;

insert into xce.state (lifecycle, state, waits_on, holds_capacity, is_terminal, why)
values
{states}
on conflict (lifecycle, state) do update
   set waits_on = excluded.waits_on,
       holds_capacity = excluded.holds_capacity,
       is_terminal = excluded.is_terminal,
       why = excluded.why,
       retired = false;

insert into xce.edge (lifecycle, source, event, target, actors, why)
values
{edges}
on conflict (lifecycle, source, event, target) do update
   set actors = excluded.actors,
       why = excluded.why,
       retired = false;
"""


def lifecycle_as_mermaid(lifecycle: Lifecycle) -> str:
    """A mermaid state diagram of one table; self-edges are left out."""
    lines = ["stateDiagram-v2"]
    for edge in lifecycle.edges:
        if edge.source != edge.target:
            source = "[*]" if edge.source == "none" else edge.source
            lines.append(f"    {source} --> {edge.target}: {edge.event}")
    lines += [f"    {state.name} --> [*]" for state in lifecycle.states if state.is_terminal]
    return "\n".join(lines) + "\n"


def lifecycles_as_markdown(lifecycles: Iterable[Lifecycle]) -> str:
    """The reference page of all lifecycles: a diagram and the table of edges of each."""
    parts = [
        "# Lifecycles\n\nPrinted from `statemachines/` by `make generate`; never edited by hand.\n"
    ]
    for table in lifecycles:
        rows = "\n".join(
            f"| {e.source} | {e.event} | {e.target} | {e.actors.replace('|', ', ')} | {e.why} |"
            for e in table.edges
        )
        parts.append(
            f"## {table.name}\n\n```mermaid\n{lifecycle_as_mermaid(table)}```\n\n"
            f"| source | event | target | who | why |\n| --- | --- | --- | --- | --- |\n{rows}\n"
        )
    return "\n".join(parts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _state_row(lifecycle: str, state: State) -> str:
    texts = ", ".join(_quoted(text) for text in (lifecycle, state.name, state.waits_on))
    flags = f"{_flag(state.holds_capacity)}, {_flag(state.is_terminal)}"
    return f"    ({texts}, {flags}, {_quoted(state.why)})"


def _edge_row(lifecycle: str, edge: Edge) -> str:
    actors = "array[" + ", ".join(_quoted(name) for name in edge.actor_names) + "]"
    texts = ", ".join(_quoted(text) for text in (lifecycle, edge.source, edge.event, edge.target))
    return f"    ({texts}, {actors}, {_quoted(edge.why)})"
