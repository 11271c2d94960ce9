"""History by month: always a place for what comes, and nothing left in the default partition."""

from datetime import UTC, datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.cluster import Database
from tests.support.story import Story

MONTHS = """
    select c.relname
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'xce.history'::regclass
     order by 1
"""


def months(conn: Connection[TupleRow]) -> list[str]:
    return [row[0] for row in conn.execute(MONTHS)]


def names(first: datetime) -> list[str]:
    return [
        f"history_{first.year + (first.month + i - 1) // 12}_{(first.month + i - 1) % 12 + 1:02}"
        for i in range(4)
    ]


def test_a_fresh_database_has_this_month_and_three_more(tx: Connection[TupleRow]) -> None:
    assert months(tx) == [*names(datetime.now(UTC)), "history_default"]


def test_the_chore_makes_those_to_come_over_the_turn_of_a_year(tx: Connection[TupleRow]) -> None:
    for _ in range(2):
        tx.execute("select xce.expire_rows('2031-11-30 23:59:59+00')")
    assert {"history_2031_11", "history_2031_12", "history_2032_01", "history_2032_02"} <= set(
        months(tx)
    )


def test_what_the_default_caught_moves_into_its_month(story: Story) -> None:
    job = story.running_job({"h1": 1})
    story.conn.execute(
        "update xce.history set at = '2033-05-31 23:30:00+00' where job_id = %s", (job,)
    )
    caught = "select count(*) from xce.history_default"
    count = story.one("select count(*) from xce.history where job_id = %s", job)
    assert story.one(caught) == count
    story.conn.execute("select xce.expire_rows('2033-05-01 00:00:00+00')")
    assert story.one(caught) == 0
    assert story.one("select count(*) from xce.history_2033_05 where job_id = %s", job) == count
    story.conn.execute("rollback")
    story.conn.execute("begin")


def test_two_makers_at_once_make_each_month_once(database: Database) -> None:
    make = "select xce.make_history_months('2035-01-15 00:00:00+00')"
    with database.connect() as one, database.connect() as two:
        one.execute("begin")
        one.execute(make)
        with two.pipeline():
            two.execute(make)
            one.execute("commit")
    with database.connect() as conn:
        assert months(conn).count("history_2035_01") == 1
