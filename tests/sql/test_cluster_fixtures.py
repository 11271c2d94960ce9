"""What the fixtures promise to all other tests."""

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.cluster import Cluster, Database, contents


def test_a_transaction_has_our_schema_and_no_search_path(tx: Connection[TupleRow]) -> None:
    assert tx.execute("show search_path").fetchone() == ("",)
    assert not tx.autocommit
    assert tx.execute("select count(*) > 0 from xce.migration").fetchone() == (True,)
    tx.execute("delete from xce.migration")


def test_what_the_transaction_before_did_is_gone(tx: Connection[TupleRow]) -> None:
    assert tx.execute("select count(*) > 0 from xce.migration").fetchone() == (True,)


def test_a_database_is_the_tests_own(
    cluster: Cluster, database: Database, tx: Connection[TupleRow]
) -> None:
    with database.connect() as conn:
        conn.execute("delete from xce.migration")
        if cluster.is_private:
            conn.execute("create role made_by_a_test")
    assert tx.execute("select count(*) > 0 from xce.migration").fetchone() == (True,)


def test_a_role_goes_with_the_database(cluster: Cluster) -> None:
    if not cluster.is_private:
        pytest.skip("roles of a given cluster are left alone")
    assert "made_by_a_test" not in cluster.roles()


def test_nobody_can_connect_to_the_template(template: Database) -> None:
    with pytest.raises(psycopg.OperationalError, match="not currently accepting connections"):
        template.connect()


def test_contents_tell_a_committed_row(database: Database) -> None:
    with database.connect() as conn:
        before = contents(conn)
        conn.execute("delete from xce.migration")
        assert contents(conn) != before
