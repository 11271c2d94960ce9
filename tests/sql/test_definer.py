"""A definer's routine means the same to every caller: nothing of a session's own gets into it."""

from importlib.resources import files

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.story import Story

DEFINERS = """
    select p.proname
      from pg_proc p
     where p.pronamespace = 'xce'::regnamespace
       and p.prosecdef
       and not 'search_path=pg_catalog, pg_temp' = any (coalesce(p.proconfig, '{}'))
"""


def test_every_definer_looks_into_a_sessions_own_schema_last(tx: Connection[TupleRow]) -> None:
    assert tx.execute(DEFINERS).fetchall() == []
    assert tx.execute("select count(*) > 10 from pg_proc where prosecdef").fetchone() == (True,)


def test_nobody_may_make_temporary_things(tx: Connection[TupleRow]) -> None:
    """A copy of a database does not take its privileges along, so they are granted anew here."""
    tx.execute(files("sql").joinpath("grants.sql").read_bytes())
    may = "select has_database_privilege('xce_worker', current_database(), 'temporary')"
    assert tx.execute(may).fetchone() == (False,)


def test_a_type_of_the_sessions_own_is_not_taken_for_one_of_ours(story: Story) -> None:
    """Even with the privilege that grants.sql takes away."""
    job = story.running_job({"h1": 1})
    name = story.one("select current_database()")
    story.conn.execute(f'grant temporary on database "{name}" to story_h1'.encode())
    with story.worker_of("h1"):
        story.conn.execute("set search_path = pg_catalog, pg_temp")
        story.conn.execute(
            "create function pg_temp.evil(value pg_catalog.text) returns boolean language plpgsql"
            " as $$ begin raise exception 'ran as %', current_user; end $$"
        )
        story.conn.execute(
            "create domain pg_temp.text as pg_catalog.text check (pg_temp.evil(value))"
        )
    assert story.report("h1", story.saying(job, 0, "up"))["old_news"] == 1
    story.conn.execute("rollback")
    story.conn.execute("begin")
