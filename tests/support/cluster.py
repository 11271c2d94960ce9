"""Gives the tests a PostgreSQL cluster: a given one, a private one, or one in a container."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from app.db import binaries, embedded
from app.db.binaries import Binaries
from app.db.migrate import migrate

GIVEN_URL = "XCE_TEST_DATABASE_URL"
#: `containers`, or the major version of programs on this machine. What is asked for and not there
#: fails the tests; nothing else is taken instead.
PROVIDER = "XCE_TEST_PROVIDER"
CONTAINERS = "containers"
NO_SEARCH_PATH = "-c search_path="


class NoClusterError(Exception):
    """Nothing on this machine gives a PostgreSQL; the message says what would."""


@dataclass(frozen=True)
class Database:
    """One database of the cluster."""

    name: str
    url: str

    def connect(self, *, autocommit: bool = True) -> Connection[TupleRow]:
        """A new connection without a search path; who asks for it closes it (use `with`)."""
        return psycopg.connect(self.url, autocommit=autocommit, options=NO_SEARCH_PATH)


@dataclass
class Cluster:
    """A running cluster; `url` is a superuser's way into it."""

    url: str
    provider: str
    is_private: bool
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def database(self, name: str) -> Database:
        return Database(name, urlsplit(self.url)._replace(path=f"/{name}").geturl())

    def create(self, purpose: str = "test", *, template: str = "template0") -> Database:
        """A new database; a copy of the template, to which nobody may be connected."""
        name = f"xce_{purpose}_{os.getpid()}_{next(self._numbers)}"
        self.execute(
            "create database {} template {}", sql.Identifier(name), sql.Identifier(template)
        )
        return self.database(name)

    def drop(self, database: Database) -> None:
        """Remove a database, whoever is still connected to it."""
        self.execute("drop database if exists {} with (force)", sql.Identifier(database.name))

    def seal(self, database: Database) -> None:
        """Let nobody connect any more, a superuser neither: what is sealed cannot change."""
        self.execute("alter database {} allow_connections false", sql.Identifier(database.name))

    def roles(self) -> set[str]:
        with psycopg.connect(self.url) as conn:
            return {name for (name,) in conn.execute("select rolname from pg_catalog.pg_roles")}

    def drop_roles(self, names: set[str]) -> None:
        for name in sorted(names):
            self.execute("drop role {}", sql.Identifier(name))

    def execute(self, statement: LiteralString, *names: sql.Identifier) -> None:
        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute(sql.SQL(statement).format(*names))


def provider() -> str:
    """Which provider will be used, told without starting anything."""
    if os.environ.get(GIVEN_URL):
        return f"the one of {GIVEN_URL}"
    found = programs()
    if found:
        return f"a private cluster, PostgreSQL {found[0].major} in {found[0].folder}"
    return "a container"


def programs() -> list[Binaries]:
    """The PostgreSQL programs to take, best first; none where a container is to be used."""
    wanted = os.environ.get(PROVIDER)
    if wanted == CONTAINERS:
        return []
    found = [one for one in binaries.available() if wanted in (None, "", str(one.major))]
    if wanted and not found:
        raise NoClusterError(f"{PROVIDER}={wanted}: there is no PostgreSQL {wanted} here")
    return found


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """The first provider that works. Raises NoClusterError."""
    url = os.environ.get(GIVEN_URL)
    if url:
        yield Cluster(url, "given", is_private=False)
    elif found := programs():
        with private_folder() as folder:
            server = embedded.start(folder, fast=True, programs=found[0])
            try:
                yield Cluster(server.url, "private", is_private=True)
            finally:
                embedded.stop(server)
    else:
        with container_url() as url:
            yield Cluster(url, "container", is_private=True)


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that is removed in the end, with whatever the server's user left in it."""
    folder = Path(tempfile.mkdtemp(prefix="xce-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def container_url() -> Iterator[str]:
    try:
        from docker.errors import DockerException
        from testcontainers.community.postgres import PostgresContainer
    except ImportError as error:
        raise NoClusterError(f"set {GIVEN_URL}: {error}") from error
    try:
        container = PostgresContainer("postgres:17", driver=None).start()
    except DockerException as error:
        raise NoClusterError(
            f"no PostgreSQL programs and no container engine here; set {GIVEN_URL} ({error})"
        ) from error
    try:
        yield container.get_connection_url()
    finally:
        container.stop()


def migrated_template(cluster: Cluster) -> Database:
    """A database with our schema and nothing else, sealed so that no test can leave a trace."""
    template = cluster.create("template")
    migrate(template.url)
    cluster.seal(template)
    return template


def contents(conn: Connection[TupleRow]) -> dict[str, Any]:
    """How many rows every table of ours has, and which advisory locks are held."""
    tables = conn.execute(
        "select c.oid::regclass::text from pg_catalog.pg_class c"
        " where c.relkind in ('r', 'p') and not c.relispartition"
        "   and c.relnamespace::regnamespace::text in ('xce', 'xce_report')"
    ).fetchall()
    counts = sql.SQL(" union all ").join(
        sql.SQL("select {}, count(*) from {}").format(name, sql.SQL(name)) for (name,) in tables
    )
    found: dict[str, Any] = dict(conn.execute(counts).fetchall()) if tables else {}
    locks = conn.execute(
        "select count(*) from pg_catalog.pg_locks l"
        " where l.locktype = 'advisory' and l.database ="
        " (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())"
    ).fetchone()
    return found | {"advisory locks": locks}
