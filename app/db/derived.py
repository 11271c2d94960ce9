"""Replaces what is derived and holds no data: lifecycle rows, routines, views, grants."""

from collections.abc import Sequence

from psycopg import Connection
from psycopg.rows import TupleRow

from app.db.scripts import Script, ScriptError

# Object id and row version: the second moves whenever the routine is replaced. What an extension
# brought stays its own.
ROUTINES = """
    select p.oid::bigint,
           p.xmin::text
      from pg_proc p
     where p.pronamespace::regnamespace::text in ('xce', 'xce_report')
       and not exists (
               select
                 from pg_depend d
                where d.classid = 'pg_proc'::regclass
                  and d.objid = p.oid
                  and d.deptype = 'e'
           )
"""
# What a trigger, a column default or a constraint uses cannot be dropped, only replaced: where
# even that is refused, a migration has to lead the way. The rest goes in one statement, because
# routines may depend on each other.
DROP_UNUSED_ROUTINES = """
    select 'drop routine ' || string_agg(p.oid::regprocedure::text, ', ')
      from pg_proc p
     where p.oid::bigint = any(%s)
       and not exists (
               select
                 from pg_depend d
                where d.refclassid = 'pg_proc'::regclass
                  and d.refobjid = p.oid
                  and d.classid <> 'pg_proc'::regclass
                  and d.deptype in ('n', 'a')
           )
"""
DROP_VIEWS = """
    select 'drop view ' || string_agg(c.oid::regclass::text, ', ') || ' cascade'
      from pg_class c
     where c.relkind = 'v'
       and c.relnamespace::regnamespace::text in ('xce', 'xce_report')
       and not exists (
               select
                 from pg_depend d
                where d.classid = 'pg_class'::regclass
                  and d.objid = c.oid
                  and d.deptype = 'e'
           )
"""


def replace(conn: Connection[TupleRow], scripts: Sequence[Script]) -> None:
    """Apply the scripts, and drop the views and routines that they do not make any more.

    Wants to be inside a transaction, so that everybody else sees either the old or the new.
    Routines are replaced in place where PostgreSQL allows that, for the sake of programs that are
    calling them. Raises ScriptError.
    """
    run_what_it_returns(conn, DROP_VIEWS)
    before = routines(conn)
    try:
        with conn.transaction():
            run_all(conn, scripts)
    except ScriptError:
        # Either a script is wrong, and then it fails again, or an old routine is in the way: one
        # whose result type or argument names changed, or that makes a call ambiguous.
        drop_unused(conn, before)
        run_all(conn, scripts)
    # Whatever was not touched just now is in no file any more. Left there, the old form of a
    # routine that gained an argument would make calls ambiguous.
    drop_unused(conn, before & routines(conn))


def run_all(conn: Connection[TupleRow], scripts: Sequence[Script]) -> None:
    """Run the scripts, and those of the routines once more to have their bodies checked."""
    # Routines call each other in any order of files: at first none of them is looked into, and
    # once all exist, all are.
    conn.execute("set local check_function_bodies = off")
    for script in scripts:
        script.run(conn)
    conn.execute("set local check_function_bodies = on")
    for script in scripts:
        if script.name.startswith("routines/"):
            script.run(conn)


def routines(conn: Connection[TupleRow]) -> set[tuple[int, str]]:
    return {(oid, version) for oid, version in conn.execute(ROUTINES)}


def drop_unused(conn: Connection[TupleRow], found: set[tuple[int, str]]) -> None:
    run_what_it_returns(conn, DROP_UNUSED_ROUTINES, [oid for oid, _ in found])


def run_what_it_returns(conn: Connection[TupleRow], query: str, *parameters: list[int]) -> None:
    """Run the one statement that a query builds from names PostgreSQL quoted itself, if any."""
    row = conn.execute(query.encode(), parameters).fetchone()
    if row is not None and row[0] is not None:
        conn.execute(row[0].encode())
