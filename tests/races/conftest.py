"""Two writers over two connections of one database."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, Database
from tests.support.interleave import Two, forget_everything, two_stories


@pytest.fixture(scope="module")
def shared_database(cluster: Cluster, template: Database) -> Iterator[Database]:
    """One for all tests of a module, each of which begins with none of our rows."""
    roles = cluster.roles() if cluster.is_private else set()
    made = cluster.create("races", template=template.name)
    yield made
    cluster.drop(made)
    if cluster.is_private:
        cluster.drop_roles(cluster.roles() - roles)


@pytest.fixture
def two(shared_database: Database) -> Iterator[Two]:
    with two_stories(shared_database) as made:
        yield made
    with shared_database.connect() as conn:
        forget_everything(conn)
