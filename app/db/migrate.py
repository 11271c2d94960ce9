"""Brings a database to the schema of this release; safe when several do it at once."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from app.db import derived, locks
from app.db.connect import address
from app.db.errors import translated
from app.db.scripts import MigrationError, Script, ScriptError, read_derived, read_migrations
from sql import FILES, SqlFiles

__all__ = [
    "EditedError",
    "MigrationError",
    "MigrationReport",
    "MissingError",
    "ScriptError",
    "TooNewError",
    "TooOldError",
    "migrate",
    "verify",
]

LOCK_KEY = 1

SESSION = """
    set search_path = pg_catalog;
    set timezone = 'UTC';
    set client_min_messages = warning;
    set statement_timeout = 0;
    set idle_in_transaction_session_timeout = 0;
"""
# A migration that waits for a table makes everybody behind it wait as well: better it fails.
PATIENCE = "set lock_timeout = '30s'"

BOOKKEEPING = """
    create schema if not exists xce;
    create table if not exists xce.migration (
        name text not null,
        sha256 text not null,
        is_breaking boolean not null,
        applied_at timestamptz not null default clock_timestamp(),
        constraint migration_pk primary key (name)
    );
    create table if not exists xce.derived_sql (
        id integer not null default 1,
        sha256 text not null,
        applied_at timestamptz not null default clock_timestamp(),
        constraint derived_sql_pk primary key (id),
        constraint derived_sql_single_ck check (id = 1)
    );
"""
RECORD_MIGRATION = "insert into xce.migration (name, sha256, is_breaking) values (%s, %s, %s)"
RECORD_DERIVED = """
    insert into xce.derived_sql (sha256)
    values (%s)
    on conflict (id) do update
       set sha256 = excluded.sha256,
           applied_at = excluded.applied_at
"""


class EditedError(MigrationError):
    """A migration that the database has differs from the file of that name."""


class MissingError(MigrationError):
    """The database has a migration that there is no file of, or has them in another order."""


class TooOldError(MigrationError):
    """The database lacks migrations of this release."""


class TooNewError(MigrationError):
    """The database has a migration after which this release may not run any more."""


@dataclass(frozen=True)
class MigrationReport:
    """What was done: the names of the migrations applied, and whether the rest was made anew."""

    applied: tuple[str, ...]
    is_refreshed: bool


@dataclass(frozen=True)
class Applied:
    """What the database says it has; of a migration its digest and whether it was breaking."""

    migrations: Mapping[str, tuple[str, bool]]
    derived_sha256: str | None


def migrate(url: str, files: SqlFiles = FILES) -> MigrationReport:
    """Apply what the database lacks; quick when it lacks nothing.

    Needs a session of its own, so not a pooler in transaction mode. What fails is rolled back with
    its file; the files before it stay. Raises MigrationError, and Unavailable.
    """
    migrations, rest = read_migrations(files), read_derived(files)
    digest = digest_of(rest)
    with translated(), session(url) as conn:
        applied = what_is_applied(conn)
        if not pending(applied, migrations) and applied.derived_sha256 == digest:
            return MigrationReport((), is_refreshed=False)
        with alone(conn):
            conn.execute(BOOKKEEPING)
            applied = what_is_applied(conn)
            missing = pending(applied, migrations)
            for script in missing:
                apply(conn, script)
            is_stale = bool(missing) or applied.derived_sha256 != digest
            if is_stale:
                with conn.transaction():
                    derived.replace(conn, rest)
                    conn.execute(RECORD_DERIVED, [digest])
        return MigrationReport(tuple(script.name for script in missing), is_refreshed=is_stale)


def verify(url: str, files: SqlFiles = FILES) -> None:
    """Raise MigrationError unless this release may run on the database; changes nothing.

    Migrations of a later release are no obstacle, so that programs of two releases can run side by
    side during an upgrade, unless one of them says that it is breaking.
    """
    migrations = read_migrations(files)
    with translated(), session(url) as conn:
        applied = what_is_told(conn)
    known = {script.name for script in migrations}
    for name, (_, is_breaking) in sorted(applied.migrations.items()):
        if is_breaking and name not in known:
            raise TooNewError(f"this release is too old for the database, which has {name}")
    later = {name: has for name, has in applied.migrations.items() if name in known}
    lacking = pending(Applied(later, None), migrations)
    if lacking:
        raise TooOldError(f"the database lacks {lacking[0].name}: run `xce migrate`")


@contextmanager
def session(url: str) -> Iterator[Connection[TupleRow]]:
    ours: dict[str, Any] = {"connect_timeout": 10, "application_name": "xce migrate"}
    with psycopg.connect("", autocommit=True, **(address(url) | ours)) as conn:
        conn.execute(SESSION)
        yield conn


@contextmanager
def alone(conn: Connection[TupleRow]) -> Iterator[None]:
    """Keep every other migration of this database out."""
    # The session's lock, not the transaction's: there is one transaction a file.
    conn.execute("select pg_advisory_lock(%s, %s)", [locks.MIGRATE, LOCK_KEY])
    conn.execute(PATIENCE)
    try:
        yield
    finally:
        if not conn.closed:
            conn.execute("select pg_advisory_unlock(%s, %s)", [locks.MIGRATE, LOCK_KEY])


def what_is_applied(conn: Connection[TupleRow]) -> Applied:
    known = conn.execute(
        "select to_regclass('xce.migration') is null or to_regclass('xce.derived_sql') is null"
    ).fetchone()
    if known == (True,):
        return Applied({}, None)
    rows = conn.execute("select name, sha256, is_breaking from xce.migration").fetchall()
    digest = conn.execute("select sha256 from xce.derived_sql").fetchone()
    migrations = {name: (sha256, is_breaking) for name, sha256, is_breaking in rows}
    return Applied(migrations, digest[0] if digest else None)


def what_is_told(conn: Connection[TupleRow]) -> Applied:
    """The migrations as every daemon's login may ask for them; none where it cannot."""
    try:
        rows = conn.execute(
            "select name, sha256, is_breaking from xce.list_migrations()"
        ).fetchall()
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName):
        return Applied({}, None)
    return Applied({name: (sha256, is_breaking) for name, sha256, is_breaking in rows}, None)


def pending(applied: Applied, migrations: Sequence[Script]) -> list[Script]:
    """The migrations that the database lacks. Raises when its past is not the files' past."""
    known = {script.name for script in migrations}
    for name in sorted(applied.migrations):
        if name not in known:
            raise MissingError(f"the database has {name}, and there is no such file")
    lacking = [script for script in migrations if script.name not in applied.migrations]
    newest = max(applied.migrations, default="")
    for script in migrations:
        has = applied.migrations.get(script.name)
        if has is not None and has[0] != script.sha256:
            raise EditedError(f"{script.name} was edited after the database applied it")
        if has is None and script.name < newest:
            raise MissingError(f"{script.name} comes before {newest}, which was applied without it")
    return lacking


def apply(conn: Connection[TupleRow], script: Script) -> None:
    if script.in_transaction:
        with conn.transaction():
            script.run(conn)
            record(conn, script)
        return
    # Statement by statement, because several sent together would be one transaction. After a crash
    # between here and the record all of them run again: such a file is written to allow that.
    script.run_apart(conn)
    record(conn, script)


def record(conn: Connection[TupleRow], script: Script) -> None:
    conn.execute(RECORD_MIGRATION, [script.name, script.sha256, script.is_breaking])


def digest_of(scripts: Sequence[Script]) -> str:
    named = "".join(f"{script.name} {script.sha256}\n" for script in scripts)
    return hashlib.sha256(named.encode()).hexdigest()
