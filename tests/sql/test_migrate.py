"""The runner of migrations, on a small tree of its own."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from app.db.errors import Unavailable
from app.db.migrate import (
    EditedError,
    MigrationReport,
    MissingError,
    ScriptError,
    TooNewError,
    TooOldError,
    migrate,
    verify,
)
from sql import FILES, SqlFiles
from tests.support.cluster import Cluster, Database

FIRST = "create schema xce_report; create table xce.job (id bigint, state text);"
SECOND = "alter table xce.job add name text default '100%';"
ROUTINE = "create or replace function xce.one() returns integer language sql as 'select 1';"
VIEW = "create view xce_report.jobs as select id, xce.one() as one from xce.job;"


class Tree(SqlFiles):
    """A tree of SQL files that a test writes."""

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.write("migrations/0001_create_job.sql", FIRST)
    tree.write("routines/one.sql", ROUTINE)
    # What `verify` asks.
    tree.write(
        "routines/list_migrations.sql", (FILES.root / "routines/list_migrations.sql").read_text()
    )
    tree.write("views/report_jobs.sql", VIEW)
    return tree


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Database]:
    """A database without anything of ours."""
    made = cluster.create("empty")
    yield made
    cluster.drop(made)


def ask(database: Database, query: str) -> object:
    with database.connect() as conn:
        row = conn.execute(query.encode()).fetchone()
    return row and row[0]


def test_a_second_run_does_nothing(tree: Tree, empty: Database) -> None:
    assert migrate(empty.url, tree) == MigrationReport(("0001_create_job.sql",), True)
    assert migrate(empty.url, tree) == MigrationReport((), False)
    verify(empty.url, tree)


def test_a_new_migration_is_applied_and_the_rest_made_anew(tree: Tree, empty: Database) -> None:
    migrate(empty.url, tree)
    tree.write("migrations/0002_add_name.sql", SECOND)
    with pytest.raises(TooOldError, match=r"0002_add_name.*xce migrate"):
        verify(empty.url, tree)
    assert migrate(empty.url, tree) == MigrationReport(("0002_add_name.sql",), True)
    assert ask(empty, "select count(*) from xce.migration") == 2


def test_two_at_once_apply_everything_once(tree: Tree, empty: Database) -> None:
    tree.write("migrations/0002_add_name.sql", SECOND)
    with ThreadPoolExecutor() as pool:
        reports = list(pool.map(lambda _: migrate(empty.url, tree), range(4)))
    assert sorted(len(report.applied) for report in reports) == [0, 0, 0, 2]


def test_an_edited_migration_is_refused(tree: Tree, empty: Database) -> None:
    migrate(empty.url, tree)
    tree.write("migrations/0001_create_job.sql", FIRST + " -- better")
    with pytest.raises(EditedError, match=r"0001_create_job\.sql"):
        migrate(empty.url, tree)
    with pytest.raises(EditedError):
        verify(empty.url, tree)


def test_a_migration_without_its_file_is_refused(tree: Tree, empty: Database) -> None:
    tree.write("migrations/0002_add_name.sql", SECOND)
    migrate(empty.url, tree)
    tree.remove("migrations/0002_add_name.sql")
    with pytest.raises(MissingError, match="0002_add_name"):
        migrate(empty.url, tree)
    verify(empty.url, tree)


def test_a_migration_that_comes_too_late_is_refused(tree: Tree, empty: Database) -> None:
    tree.write("migrations/0003_add_name.sql", SECOND)
    migrate(empty.url, tree)
    tree.write("migrations/0002_add_colour.sql", "select 1")
    with pytest.raises(MissingError, match=r"0002_add_colour.* before 0003_add_name"):
        migrate(empty.url, tree)


def test_a_breaking_migration_shuts_older_programs_out(tree: Tree, empty: Database) -> None:
    tree.write("migrations/0002_add_name.sql", f"-- migrate: breaking\n{SECOND}")
    migrate(empty.url, tree)
    verify(empty.url, tree)
    tree.remove("migrations/0002_add_name.sql")
    with pytest.raises(TooNewError, match="0002_add_name"):
        verify(empty.url, tree)


def test_a_failing_migration_leaves_nothing_and_tells_its_line(tree: Tree, empty: Database) -> None:
    tree.write("migrations/0002_break.sql", "create table xce.half ();\n\nselect nothing;\n")
    with pytest.raises(ScriptError, match=r"0002_break\.sql, line 3: .*nothing"):
        migrate(empty.url, tree)
    assert ask(empty, "select to_regclass('xce.half')") is None
    assert ask(empty, "select count(*) from xce.migration") == 1


def test_a_migration_may_ask_for_no_transaction(tree: Tree, empty: Database) -> None:
    index = "create index concurrently if not exists job_state_ix on xce.job (state);"
    text = f"-- migrate: no-transaction\n{index}\n-- migrate: next\nvacuum xce.job;\n"
    tree.write("migrations/0002_index_job.sql", text)
    migrate(empty.url, tree)
    assert ask(empty, "select to_regclass('xce.job_state_ix') is not null") is True


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("2_add.sql", "", "NNNN_verb_noun"),
        ("0001_again.sql", "", "two migrations have the number 0001"),
        ("0002_add.sql", "-- migrate: maybe\n", "maybe means nothing"),
    ],
)
def test_a_file_that_is_not_as_it_must_be_is_refused(
    tree: Tree, empty: Database, name: str, text: str, why: str
) -> None:
    tree.write(f"migrations/{name}", text)
    with pytest.raises(ScriptError, match=why):
        migrate(empty.url, tree)


def test_a_routine_may_change_its_result_and_its_arguments(tree: Tree, empty: Database) -> None:
    migrate(empty.url, tree)
    changed = "create or replace function xce.one(p_more integer default 0) returns text"
    tree.write("routines/one.sql", f"{changed} language sql as $$ select 'one' $$;")
    assert migrate(empty.url, tree) == MigrationReport((), True)
    assert ask(empty, "select xce.one()") == "one"

    changed = "create or replace function xce.one(p_less integer default 0) returns bigint"
    tree.write("routines/one.sql", f"{changed} language sql as 'select 1';")
    assert migrate(empty.url, tree) == MigrationReport((), True)
    assert ask(empty, "select xce.one()") == 1


def test_routines_may_call_each_other_in_any_order(tree: Tree, empty: Database) -> None:
    tree.write("routines/a_caller.sql", ROUTINE.replace("one", "two").replace("1", "xce.one()"))
    migrate(empty.url, tree)
    assert ask(empty, "select xce.two()") == 1


def test_the_body_of_a_routine_is_checked(tree: Tree, empty: Database) -> None:
    tree.write("routines/a_caller.sql", ROUTINE.replace("one", "two").replace("1", "xce.none()"))
    with pytest.raises(ScriptError, match=r"routines/a_caller\.sql.* xce\.none"):
        migrate(empty.url, tree)


def test_what_is_in_no_file_any_more_goes(tree: Tree, empty: Database) -> None:
    tree.write("routines/two.sql", ROUTINE.replace("one", "two"))
    migrate(empty.url, tree)
    tree.remove("routines/two.sql")
    tree.remove("views/report_jobs.sql")
    migrate(empty.url, tree)
    assert ask(empty, "select to_regproc('xce.two')") is None
    assert ask(empty, "select to_regclass('xce_report.jobs')") is None
    assert ask(empty, "select xce.one()") == 1


def test_a_trigger_keeps_its_function_while_it_is_replaced(tree: Tree, empty: Database) -> None:
    function = "create or replace function xce.guard() returns trigger language plpgsql as"
    trigger = "create or replace trigger g before update on xce.job for each row"
    body = f"{function} $$ begin return new; end $$; {trigger} execute function xce.guard();"
    tree.write("routines/guard.sql", body)
    migrate(empty.url, tree)
    tree.write("routines/guard.sql", body.replace("return new", "return null"))
    tree.write("routines/one.sql", ROUTINE.replace("integer", "bigint"))
    assert migrate(empty.url, tree) == MigrationReport((), True)
    assert ask(empty, "select count(*) from pg_catalog.pg_trigger where tgname = 'g'") == 1


def test_a_fault_in_a_routine_leaves_all_as_it_was(tree: Tree, empty: Database) -> None:
    migrate(empty.url, tree)
    tree.write("routines/two.sql", "create or replace function xce.two() returns nothing;")
    with pytest.raises(ScriptError, match=r"routines/two\.sql"):
        migrate(empty.url, tree)
    assert ask(empty, "select one from xce_report.jobs") is None


def test_a_database_that_is_away_is_told_as_such(tree: Tree) -> None:
    with pytest.raises(Unavailable):
        migrate("postgresql://nobody@127.0.0.1:1/xce", tree)


def test_a_migration_keeps_out_of_everybodys_way(tree: Tree, empty: Database) -> None:
    """A lock that somebody else keeps makes it fail, and the failure is one that passes."""
    migrate(empty.url, tree)
    tree.write("migrations/0002_add_name.sql", f"set local lock_timeout = '50ms'; {SECOND}")
    with empty.connect(autocommit=False) as reader:
        reader.execute("select from xce.job")
        with pytest.raises(Unavailable, match="lock timeout"):
            migrate(empty.url, tree)
    assert migrate(empty.url, tree).applied == ("0002_add_name.sql",)
    assert isinstance(psycopg.errors.LockNotAvailable(), psycopg.OperationalError)


def test_history_from_before_the_feed_is_numbered_as_it_was_written(
    empty: Database, tmp_path: Path
) -> None:
    before = tmp_path / "sql"
    shutil.copytree(FILES.root, before)
    # Routines and grants may speak of what later migrations add.
    for path in (*before.glob("routines/*.sql"), before / "grants.sql"):
        path.unlink()
    for path in sorted(before.glob("migrations/*.sql"))[1:]:
        path.unlink()
    migrate(empty.url, SqlFiles(before))
    write = (
        "insert into xce.history"
        " (lifecycle, row_id, version, at, source, event, target, actor, era)"
        " select e.lifecycle, n, 1, {at}, e.source, e.event, e.target, 'test', 1"
        " from generate_series(1, 3) as n,"
        " (select * from xce.edge where lifecycle = 'job' order by source, event limit 1) as e"
    )
    with empty.connect() as conn:
        conn.execute(write.format(at="clock_timestamp()").encode())
    migrate(empty.url)
    with empty.connect() as conn:
        conn.execute(write.format(at="'2000-01-01'").encode())
        rows = conn.execute("select row_id from xce.history order by era, xid, id").fetchall()
        numbers = conn.execute("select count(distinct id), min(id) from xce.history").fetchone()
    assert rows == [(1,), (2,), (3,), (1,), (2,), (3,)]
    assert numbers == (6, 1)
