"""A story in a rolled-back transaction, which may not break a rule of DESIGN §4."""

from collections.abc import Iterator

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.rules import broken_rules
from tests.support.story import Story


@pytest.fixture
def story(tx: Connection[TupleRow]) -> Iterator[Story]:
    """Three hosts of four cpus, all up; whatever the test does, every rule holds in the end."""
    told = Story(tx)
    for name in ("h1", "h2", "h3"):
        told.host(name)
    yield told
    assert broken_rules(tx) == []
