"""A story in a rolled-back transaction, which may not break a rule of DESIGN §4."""

from collections.abc import Iterator

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from app.db.statements import statement, statement_names
from tests.support.story import Story


@pytest.fixture
def story(tx: Connection[TupleRow]) -> Iterator[Story]:
    """Three hosts of four cpus, all up; whatever the test does, every rule holds in the end."""
    told = Story(tx)
    for name in ("h1", "h2", "h3"):
        told.host(name)
    yield told
    assert broken_rules(tx) == []


def broken_rules(conn: Connection[TupleRow]) -> list[object]:
    names = statement_names("check_")
    assert len(names) == 12
    return [row for name in names for row in conn.execute(statement(name)).fetchall()]
