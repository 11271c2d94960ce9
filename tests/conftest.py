"""The fixtures every test may ask for: a cluster, a transaction in it, a database of its own."""

import signal
from collections.abc import Iterator

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support import cluster as clusters
from tests.support.cluster import Cluster, Database


def pytest_report_header() -> str:
    return f"database: {clusters.provider()}"


# Whoever starts the tests in the background may have had Ctrl-C ignored, which every process that a
# test starts and interrupts would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running PostgreSQL, not durable where it is our own."""
    with clusters.running_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def template(cluster: Cluster) -> Iterator[Database]:
    """Our schema and nothing else. Nobody can connect to it: it is there to be copied."""
    made = clusters.migrated_template(cluster)
    yield made
    cluster.drop(made)


@pytest.fixture
def database(cluster: Cluster, template: Database) -> Iterator[Database]:
    """A migrated database of the test's own, for commits, LISTEN and several connections.

    Roles belong to the whole cluster: those that the test made go with its database, except on a
    cluster that was given to us, where they may be somebody else's.
    """
    roles = cluster.roles() if cluster.is_private else set()
    made = cluster.create(template=template.name)
    yield made
    cluster.drop(made)
    if cluster.is_private:
        cluster.drop_roles(cluster.roles() - roles)


@pytest.fixture(scope="session")
def tx_database(cluster: Cluster, template: Database) -> Iterator[Database]:
    """The database that all tests with `tx` look at and none changes."""
    made = cluster.create("tx", template=template.name)
    yield made
    cluster.drop(made)


@pytest.fixture(scope="session")
def tx_watcher(tx_database: Database) -> Iterator[tuple[Connection[TupleRow], dict[str, object]]]:
    with tx_database.connect() as conn:
        yield conn, clusters.contents(conn)


@pytest.fixture
def tx(
    tx_database: Database, tx_watcher: tuple[Connection[TupleRow], dict[str, object]]
) -> Iterator[Connection[TupleRow]]:
    """A connection in a transaction that is rolled back in the end, without a search path."""
    with tx_database.connect(autocommit=False) as conn:
        yield conn
        conn.rollback()
    watcher, before = tx_watcher
    assert clusters.contents(watcher) == before, "the test left something in the database"
