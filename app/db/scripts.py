"""Reads the SQL files that make the schema, and runs one, telling where in it something failed."""

import hashlib
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from sql import SqlFiles

MIGRATION_NAME = re.compile(r"\d{4}_[a-z0-9]+(_[a-z0-9]+)*\.sql")
DIRECTIVE = re.compile(r"-- migrate: *(.*)")
NO_TRANSACTION = "no-transaction"
BREAKING = "breaking"
NEXT = re.compile(r"^-- migrate: *next *$", re.MULTILINE)


class MigrationError(Exception):
    """The database cannot be brought to this release's schema; the message says why."""


class ScriptError(MigrationError):
    """A SQL file is not as it must be, or PostgreSQL refused it."""


@dataclass(frozen=True)
class Script:
    """One SQL file."""

    name: str
    text: str
    in_transaction: bool = True
    is_breaking: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def run(self, conn: Connection[TupleRow]) -> None:
        """Run the file as a whole. Raises ScriptError."""
        self._run(conn, self.text)

    def run_apart(self, conn: Connection[TupleRow]) -> None:
        """Run the parts between `-- migrate: next` lines one by one. Raises ScriptError."""
        for part in NEXT.split(self.text):
            self._run(conn, part)

    def _run(self, conn: Connection[TupleRow], text: str) -> None:
        try:
            # As bytes and without parameters: sent as it is, percent signs and all.
            conn.execute(text.encode())
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            raise ScriptError(f"{self.name}{line_of(error, text)}: {told(error)}") from error


def read_migrations(files: SqlFiles) -> tuple[Script, ...]:
    """All migrations in order. Raises ScriptError when a name or a directive is wrong."""
    scripts = tuple(read_migration(path) for path in files.migrations())
    numbers = [script.name[:4] for script in scripts]
    for earlier, later in itertools.pairwise(numbers):
        if earlier == later:
            raise ScriptError(f"two migrations have the number {later}")
    return scripts


def read_migration(path: Path) -> Script:
    if not MIGRATION_NAME.fullmatch(path.name):
        raise ScriptError(f"{path.name}: a migration is named NNNN_verb_noun.sql")
    text = read(path)
    directives = set()
    for line in text.splitlines():
        directive = DIRECTIVE.fullmatch(line.rstrip())
        if directive is None:
            break
        directives.add(directive[1])
    unknown = directives - {NO_TRANSACTION, BREAKING}
    if unknown:
        raise ScriptError(f"{path.name}: -- migrate: {min(unknown)} means nothing")
    return Script(
        path.name,
        text,
        in_transaction=NO_TRANSACTION not in directives,
        is_breaking=BREAKING in directives,
    )


def read_derived(files: SqlFiles) -> tuple[Script, ...]:
    """The generated rows, routines, views and grants, in the order in which they are applied."""
    return tuple(Script(str(path.relative_to(files.root)), read(path)) for path in files.derived())


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path.name} cannot be read: {error}") from error


def line_of(error: psycopg.Error, text: str) -> str:
    position = error.diag.statement_position
    return f", line {text[: int(position)].count(chr(10)) + 1}" if position else ""


def told(error: psycopg.Error) -> str:
    parts = (error.diag.message_primary, error.diag.message_detail, error.diag.context)
    return "\n".join(part for part in parts if part) or str(error)
