"""One table, four speakers: Python, `transitions`, the SQL rows and the guard agree on all."""

import itertools

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow
from transitions import MachineError

from statemachines import LIFECYCLES, IllegalEdgeError, Lifecycle
from statemachines.machine import machine
from statemachines.table import ACTORS, State


def said_by_table(table: Lifecycle, source: str, event: str) -> str | None:
    for actor in sorted(ACTORS):
        try:
            return table.edge(source, event, actor).target
        except IllegalEdgeError:
            continue
    return None


def said_by_machine(table: Lifecycle, source: str, event: str) -> str | None:
    walked = machine(table, initial=source)
    try:
        walked.model.trigger(event)
    except MachineError:
        return None
    return str(walked.model.state)


def said_by_rows(
    conn: Connection[TupleRow], table: Lifecycle, source: str, event: str
) -> str | None:
    row = conn.execute(
        """
        select target
          from xce.edge
         where lifecycle = %s
           and source = %s
           and event = %s
           and not retired
        """,
        (table.name, source, event),
    ).fetchone()
    return None if row is None else row[0]


@pytest.mark.parametrize("table", LIFECYCLES, ids=lambda table: table.name)
def test_every_pair_means_the_same_to_every_speaker(
    tx: Connection[TupleRow], table: Lifecycle
) -> None:
    for state, event in itertools.product(table.states, table.events):
        said = said_by_table(table, state.name, event)
        assert said_by_machine(table, state.name, event) == said, (state.name, event)
        assert said_by_rows(tx, table, state.name, event) == said, (state.name, event)


@pytest.fixture
def guarded(tx: Connection[TupleRow]) -> Connection[TupleRow]:
    """A bare table for each lifecycle under the one guard that all of them have."""
    tx.execute("create schema guarded")
    for table in LIFECYCLES:
        tx.execute(f"create table guarded.{table.name} (state text)".encode())
        for when in ("insert", "update"):
            tx.execute(
                f"create trigger g_{when} before {when} on guarded.{table.name} "
                f"for each row execute function xce.guard_state('{table.name}')".encode()
            )
    return tx


def guard_allows(
    conn: Connection[TupleRow], table: Lifecycle, source: State, target: State
) -> bool:
    name = f"guarded.{table.name}"
    conn.execute("savepoint tried")
    try:
        if source.name == "none":
            conn.execute(f"insert into {name} values (%s)".encode(), (target.name,))
        else:
            conn.execute("set local session_replication_role = replica")
            conn.execute(f"insert into {name} values (%s)".encode(), (source.name,))
            conn.execute("set local session_replication_role = origin")
            conn.execute(f"update {name} set state = %s".encode(), (target.name,))
    except psycopg.DatabaseError as error:
        if error.sqlstate != "RZ422":
            raise
        return False
    finally:
        conn.execute("rollback to savepoint tried")
    return True


@pytest.mark.parametrize("table", LIFECYCLES, ids=lambda table: table.name)
def test_the_guard_lets_through_exactly_the_moves_of_the_table(
    guarded: Connection[TupleRow], table: Lifecycle
) -> None:
    legal = {(edge.source, edge.target) for edge in table.edges}
    for source, target in itertools.product(table.states, table.states):
        assert guard_allows(guarded, table, source, target) is (
            (source.name, target.name) in legal
        ), (source, target)


def test_the_rows_say_who_may_fire_and_why(tx: Connection[TupleRow]) -> None:
    rows = tx.execute(
        """
        select lifecycle, source, event, target, actors, why
          from xce.edge
         where not retired
        """
    ).fetchall()
    assert sorted(rows) == sorted(
        (table.name, e.source, e.event, e.target, list(e.actor_names), e.why)
        for table in LIFECYCLES
        for e in table.edges
    )


def test_what_may_have_a_process_or_room_holds_capacity() -> None:
    holding = {
        (table.name, state.name)
        for table in LIFECYCLES
        for state in table.states
        if state.holds_capacity
    }
    assert holding == {
        ("start", "placed"),
        ("grow", "placed"),
        ("task", "assigned"),
        ("task", "starting"),
        ("task", "running"),
        ("task", "stopping"),
    }
