"""A host whose login fell into wrong hands, and a controller's: what the database lets them do."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.errors import DatabaseError, InsufficientPrivilege
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from app.db.doorbell import Doorbell
from app.db.logins import CONTROLLER_GROUP, WORKER_GROUP, controller_login_name, make_login
from app.db.migrate import migrate
from sql import FILES
from tests.support.cluster import NO_SEARCH_PATH, Database
from tests.support.story import Story
from tests.support.worker import BOOT_ID, StubWorker, add_host, login_url

WORKERS_FUNCTIONS = {
    *("worker_register", "worker_fetch", "worker_report", "worker_redeem", "list_migrations"),
}

TABLES = """
    select c.oid::regclass::text
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where c.relkind = any (%s)
       and n.nspname !~ '^pg_'
       and n.nspname <> 'information_schema'
     order by 1
"""
READABLE = ["r", "p", "v", "m", "f"]
SEQUENCE = ["S"]

FUNCTIONS = """
    select p.proname, has_function_privilege(p.oid, 'execute'),
           p.proisstrict or p.prorettype = 'trigger'::regtype or d.objid is not null,
           array(select format('null::%s', pg_catalog.format_type(a, null))
                   from unnest(p.proargtypes::oid[]) a)
      from pg_catalog.pg_proc p
      join pg_catalog.pg_namespace n on n.oid = p.pronamespace
      left join pg_catalog.pg_depend d
             on d.classid = 'pg_catalog.pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
     where n.nspname like 'xce%'
     order by p.oid
"""

# What a login of ours could try against the server itself. All of these need a right of their own.
REACHES = [
    "select pg_catalog.pg_read_file('PG_VERSION')",
    "select pg_catalog.pg_ls_dir('.')",
    "select pg_catalog.pg_stat_file('PG_VERSION')",
    "select * from pg_catalog.pg_hba_file_rules",
    "select * from pg_catalog.pg_authid",
    "select * from pg_catalog.pg_statistic",
    "copy (select 1) to program 'true'",
    "copy (select 1) to '/tmp/xce-hostile'",
    "select pg_catalog.lo_import('/etc/passwd')",
    "select pg_catalog.lo_create(0)",
    "select pg_catalog.lo_creat(-1)",
    "select pg_catalog.lo_from_bytea(0, 'x')",
    "select pg_catalog.pg_reload_conf()",
    "select pg_catalog.pg_switch_wal()",
    "select pg_catalog.pg_create_restore_point('x')",
    "select pg_catalog.pg_logical_emit_message(false, 'x', 'y') where false is null"
    " or pg_catalog.pg_create_physical_replication_slot('x') is null",
    "alter system set work_mem = '1GB'",
    "set session_replication_role = replica",
    "set log_statement = 'all'",
    "create schema mine",
    "create table public.mine ()",
    "create table xce.mine ()",
    "create temporary table mine ()",
    "create function public.mine() returns int language sql as 'select 1'",
    "create function xce.mine() returns int language sql as 'select 1'",
    "create type public.mine as enum ()",
    "create role mine",
    "create database mine",
    "create event trigger mine on ddl_command_start execute function xce.guard_state()",
    "create publication mine",
    "create subscription mine connection '' publication x",
    "create foreign data wrapper mine",
    "do $$ begin execute 'create table xce.mine ()'; end $$",
    "alter table xce.job disable trigger all",
    "drop table xce.history",
    "comment on schema xce is 'mine'",
]


@dataclass
class Scene:
    """Two hosts with a running task each, and a connection as the first one's login."""

    database: Database
    story: Story
    hostile: Connection[TupleRow]
    workers: dict[str, StubWorker] = field(default_factory=dict)
    job: int = 0

    def contents(self) -> dict[str, Any]:
        """Every row of ours, without what a host may say of itself."""
        found = {}
        for (name,) in self.story.conn.execute(TABLES, [READABLE]).fetchall():
            query = sql.SQL(
                "select coalesce(array_agg(t::text order by t::text), '{{}}') from {} t"
            )
            row = self.story.conn.execute(query.format(sql.SQL(name))).fetchone()
            assert row is not None
            found[name] = row[0]
        return found

    def changes_nothing(self, call: Callable[[], object]) -> object:
        before = self.contents()
        answer = call()
        after = self.contents()
        assert {name for name in before if before[name] != after[name]} == set()
        return answer


@pytest.fixture
def installed(database: Database) -> Database:
    """With the rights of the database itself, which a copy of a template does not get."""
    with database.connect() as conn:
        conn.execute("delete from xce.derived_sql")
    migrate(database.url)
    return database


@pytest.fixture
def scene(installed: Database) -> Iterator[Scene]:
    database = installed
    workers = {name: add_host(database, name) for name in ("h1", "h2")}
    with (
        database.connect() as conn,
        psycopg.connect(
            login_url(database, "h1"), autocommit=True, options=NO_SEARCH_PATH
        ) as hostile,
    ):
        story = Story(conn)
        for name, worker in workers.items():
            story.hosts[name] = story.one("select id from xce.host where name = %s", name)
            worker.register()
            worker.fetch()
        made = Scene(database, story, hostile, workers)
        made.job = story.submit(2, max_tasks=3, command=["true"], env={"SECRET": "x"})
        story.place(story.start_of(made.job), {"h1": 1, "h2": 1})
        for worker in workers.values():
            worker.start_all(made.job)
        yield made
        for worker in workers.values():
            worker.__exit__()


def controller_of(database: Database, folder: Path) -> str:
    with database.connect() as conn:
        return make_login(
            conn,
            controller_login_name(database.name),
            group=CONTROLLER_GROUP,
            url=database.url,
            passfile=folder / "passfile",
        ).url


def refused(conn: Connection[TupleRow], statement: str) -> bool:
    """Whether the database refuses for want of a right."""
    try:
        conn.execute(statement.encode())
    except InsufficientPrivilege:
        return True
    except DatabaseError as error:
        pytest.fail(f"{statement}: refused for another reason: {error}")
    return False


def writes(table: str, column: str) -> list[str]:
    return [
        f"insert into {table} default values",
        f"update {table} set {column} = {column}",
        f"delete from {table}",
        f"truncate {table} cascade",
        f"do $$ begin lock table {table} in access exclusive mode; end $$",
        f"select * from {table} for update",
    ]


def of_sequences(conn: Connection[TupleRow]) -> list[str]:
    names = [name for (name,) in conn.execute(TABLES, [SEQUENCE]).fetchall()]
    calls = ("select * from {}", "select nextval('{}')", "select setval('{}', 1)")
    return [call.format(name) for name in names for call in calls]


def tables(conn: Connection[TupleRow]) -> list[tuple[str, str]]:
    """Each with the name of a column that may be written to."""
    found = []
    for (name,) in conn.execute(TABLES, [READABLE]).fetchall():
        row = conn.execute(
            "select attname from pg_catalog.pg_attribute where attrelid = %s::regclass"
            " and attnum > 0 and attgenerated = '' and attidentity = '' and not attisdropped"
            " order by attnum desc limit 1",
            [name],
        ).fetchone()
        found.append((name, row[0] if row else "ctid"))
    return found


def test_a_hosts_login_touches_no_table(scene: Scene) -> None:
    every = tables(scene.story.conn)
    assert len(every) > 20
    for table, column in every:
        for statement in (
            f"select * from {table}",
            f"copy {table} to stdout",
            *writes(table, column),
        ):
            assert refused(scene.hostile, statement), statement
    for statement in of_sequences(scene.story.conn):
        assert refused(scene.hostile, statement), statement


def test_a_controllers_login_reads_but_writes_no_table(database: Database, tmp_path: Path) -> None:
    with database.connect() as owner:
        every = tables(owner)
        sequences = of_sequences(owner)
    with psycopg.connect(controller_of(database, tmp_path), autocommit=True) as conn:
        for table, column in every:
            for statement in writes(table, column):
                assert refused(conn, statement), statement
        for statement in sequences:
            assert statement.startswith("select *") or refused(conn, statement), statement


def executable(conn: Connection[TupleRow]) -> set[str]:
    """The functions of ours that the login may call: looked up, and tried where that is a test.

    It is none for an extension's, for triggers, and where the planner leaves the call out.
    """
    allowed = set()
    for name, may_call, is_untried, arguments in conn.execute(FUNCTIONS).fetchall():
        if is_untried or not refuses_call(conn, name, arguments):
            allowed |= {name} if may_call or not is_untried else set()
    return allowed


def granted_to(group: str) -> set[str]:
    """What the file says, which is there to be read by whoever wants to know."""
    text = FILES.root.joinpath("grants.sql").read_text("utf-8")
    (names,) = re.findall(rf"grant execute on function([^;]*?)\bto {group};", text)
    return set(re.findall(r"^ *xce\.(\w+) \(", names, re.MULTILINE))


def refuses_call(conn: Connection[TupleRow], name: str, arguments: list[str]) -> bool:
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(f"select xce.{name}({', '.join(arguments)})".encode())
    except InsufficientPrivilege as error:
        # A right that the function itself lacks would mean that it did run.
        return f"for function {name}" in str(error)
    except DatabaseError:
        # It ran, and did not like its arguments.
        return False
    return False


def test_a_hosts_login_calls_the_workers_functions_only(scene: Scene) -> None:
    assert executable(scene.hostile) == WORKERS_FUNCTIONS


def test_a_controllers_login_calls_its_own_functions_only(
    database: Database, tmp_path: Path
) -> None:
    with psycopg.connect(controller_of(database, tmp_path), autocommit=True) as conn:
        granted = granted_to(CONTROLLER_GROUP)
        assert "apply_plan" in granted
        assert executable(conn) == granted


@pytest.mark.parametrize("statement", REACHES)
def test_neither_login_reaches_beyond(scene: Scene, tmp_path: Path, statement: str) -> None:
    assert refused(scene.hostile, statement)
    with psycopg.connect(controller_of(scene.database, tmp_path), autocommit=True) as conn:
        assert refused(conn, statement)


def test_nobody_becomes_somebody_else(scene: Scene, tmp_path: Path) -> None:
    me, other = (
        scene.story.one("select login from xce.host where name = %s", name) for name in ("h1", "h2")
    )
    owner = scene.story.one("select current_user")
    controller_of(scene.database, tmp_path)
    for role in (other, owner, CONTROLLER_GROUP, controller_login_name(scene.database.name)):
        for statement in (
            f'set role "{role}"',
            f'set session authorization "{role}"',
            f'grant "{role}" to "{me}"',
            f"alter role \"{role}\" password 'x'",
            f'alter role "{role}" set search_path = pg_temp',
            f'drop role "{role}"',
        ):
            assert refused(scene.hostile, statement), statement
    for statement in (
        f'alter role "{me}" superuser',
        f'alter role "{me}" createrole',
        f'grant {WORKER_GROUP} to "{other}"',
    ):
        assert refused(scene.hostile, statement), statement
    # The group it is in has no right of its own that counts: the login is what says the host.
    scene.hostile.execute(f"set role {WORKER_GROUP}".encode())
    registered = scene.hostile.execute(
        "select xce.worker_register(%s, 'x', '[]')", [BOOT_ID]
    ).fetchone()
    assert registered is not None
    assert registered[0]["host"] == "h1"


def test_what_a_session_sets_for_itself_misleads_no_routine(scene: Scene) -> None:
    hostile = scene.hostile
    for setting in ("search_path = pg_temp, public", "xce.login = 'h2'", "row_security = off"):
        hostile.execute(f"set {setting}".encode())
    for name in ("my_host", "setting_value", "settle_jobs"):
        assert refused(hostile, f"create function pg_temp.{name}() returns int language sql as ''")
    answer = hostile.execute("select xce.worker_register(%s, 'x', '[]')", [BOOT_ID]).fetchone()
    assert answer is not None
    assert answer[0]["host"] == "h1"


FORGED: list[dict[str, Any]] = [
    {"event": "gone", "execed": True, "exit_code": 0},
    {"event": "gone", "execed": False, "lost": True},
    {"event": "up"},
]


@pytest.mark.parametrize("forged", FORGED)
def test_another_hosts_task_is_not_a_hosts_to_report(scene: Scene, forged: dict[str, Any]) -> None:
    of_other = next(index for index in (0, 1) if scene.story.host_of(scene.job, index) == "h2")
    report = {"job_id": scene.job, "attempt": 1, "index": of_other, **forged}
    own = scene.workers["h1"]
    answer = scene.changes_nothing(lambda: own.report(report, report))
    assert answer == {"stale": False, "accepted": 0, "old_news": 2, "rings": []}


def test_another_incarnation_says_nothing(scene: Scene) -> None:
    mine = next(index for index in (0, 1) if scene.story.host_of(scene.job, index) == "h1")
    report = {"job_id": scene.job, "attempt": 1, "index": mine, "event": "gone", "execed": True}
    current = scene.workers["h1"].incarnation
    for wrong in (0, -1, current - 1, current + 1, 2**62):

        def call(wrong: int = wrong) -> tuple[Any, Any]:
            reported = scene.hostile.execute(
                "select xce.worker_report(%s, %s)", [wrong, Jsonb([report])]
            ).fetchone()
            fetched = scene.hostile.execute("select xce.worker_fetch(%s, true)", [wrong]).fetchone()
            return reported, fetched

        answers = scene.changes_nothing(call)
        assert isinstance(answers, tuple)
        assert all(answer[0]["stale"] for answer in answers)


def test_a_host_keeps_and_gets_nothing_of_another(scene: Scene) -> None:
    every = [
        {"job_id": scene.job, "attempt": 1, "index": index, "boot_id": BOOT_ID} for index in (0, 1)
    ]
    registered = scene.workers["h1"].register(every)
    mine = next(index for index in (0, 1) if scene.story.host_of(scene.job, index) == "h1")
    assert [kept["index"] for kept in registered["keep"]] == [mine]
    grow = scene.story.grow(scene.job, 1)
    scene.story.place(grow, {"h2": 1})
    tasks = scene.workers["h1"].fetch()
    assert {task["index"] for task in tasks} == {mine}
    assert [task["launch"] for task in tasks] == [None]
    assert scene.story.tasks(scene.job)[2] == "assigned"


MALFORMED = [
    "null", "{}", "[1]", '"x"', "[[]]", '[{"job_id": "x"}]', '[{"job_id": 9223372036854775808}]',
    '[{"event": "gone"}]', '[{"job_id": 1, "attempt": 1, "index": 0, "event": "vanished"}]',
    '[{"job_id": 1, "attempt": 1, "index": 0, "event": "gone", "exit_code": 1e99}]',
    '[{"job_id": 1, "attempt": 1, "index": 0, "event": "gone", "execed": "perhaps"}]',
    '[{"job_id": 1, "attempt": 2, "index": 0, "event": "gone", "execed": true}]',
]  # fmt: skip


@pytest.mark.parametrize("document", MALFORMED)
def test_a_malformed_report_changes_nothing(scene: Scene, document: str) -> None:
    """The task that most of them name is the host's own."""
    assert scene.story.host_of(1, 0) == "h1"

    def call() -> None:
        statement = "select xce.worker_report(%s, %s::jsonb)"
        with contextlib.suppress(DatabaseError):
            scene.hostile.execute(statement, [scene.workers["h1"].incarnation, document])

    scene.changes_nothing(call)


def test_a_host_cannot_fill_history_with_a_reason(scene: Scene) -> None:
    scene.workers["h1"].gone(scene.job, 0, exit_code=1, reason="x" * 10_000_000)
    kept = scene.story.one(
        "select max(length(reason)) from xce.history where job_id = %s", scene.job
    )
    assert kept == 1000


async def test_another_hosts_bell_carries_nothing(scene: Scene) -> None:
    channels = [f"xce_host_{scene.story.hosts['h2']}", "xce_plan", "xce_watch"]
    for channel in channels:
        scene.hostile.execute(f'listen "{channel}"'.encode())
    doorbell = Doorbell(scene.database.url)
    await doorbell.ring(channels)
    await doorbell.close()
    heard = list(itertools.islice(scene.hostile.notifies(timeout=10), len(channels)))
    assert {bell.channel for bell in heard} == set(channels)
    assert {bell.payload for bell in heard} == {""}


def test_nobody_may_make_anything_in_the_public_schema(installed: Database) -> None:
    with installed.connect() as conn:
        row = conn.execute(
            "select has_schema_privilege('public', 'public', 'create'),"
            " has_database_privilege('public', current_database(), 'temporary')"
        ).fetchone()
    assert row == (False, False)
