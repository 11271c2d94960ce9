"""A worker of straw: it speaks the three verbs with the login of its host and starts nothing."""

import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from app.db.logins import host_login_name
from tests.support.cluster import NO_SEARCH_PATH, Database

BOOT_ID = "boot-of-straw"


@dataclass
class StubWorker:
    """The worker of one host that `add_host` made; every method is one transaction."""

    database: Database
    host: str
    incarnation: int = 0
    host_id: int = 0
    #: What the last fetch said should run, by (job, index).
    desired: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    _conn: Connection[TupleRow] | None = None

    def __enter__(self) -> "StubWorker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._conn is not None:
            self._conn.close()

    def register(
        self, live: list[dict[str, Any]] | None = None, door: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        answer = self._call(
            "xce.worker_register(%s, %s, %s, null, %s, %s)",
            *(BOOT_ID, "stub", Jsonb(live or []), *(door or (None, None))),
        )
        self.incarnation, self.host_id = answer["incarnation"], answer["host_id"]
        return answer

    def fetch(self, *, is_clear: bool = True) -> list[dict[str, Any]]:
        """Claim what is assigned and say what should run here."""
        answer = self._call("xce.worker_fetch(%s, %s)", self.incarnation, is_clear)
        assert not answer["stale"]
        tasks: list[dict[str, Any]] = answer["tasks"]
        self.desired = {(task["job_id"], task["index"]): task for task in tasks}
        return tasks

    def report(self, *reports: dict[str, Any]) -> dict[str, Any]:
        return self._call("xce.worker_report(%s, %s)", self.incarnation, Jsonb(list(reports)))

    def up(self, job_id: int, *indices: int) -> dict[str, Any]:
        """These tasks run; all that should start where none is named."""
        wanted = indices or self._indices(job_id, "starting")
        return self.report(*(self._about(job_id, index, event="up") for index in wanted))

    def gone(
        self, job_id: int, *indices: int, exit_code: int | None = 0, **said: Any
    ) -> dict[str, Any]:
        """These tasks ended; all that should stop where none is named."""
        wanted = indices or self._indices(job_id, "stopping")
        told = {"execed": True, "exit_code": exit_code, "signal": None, "lost": False} | said
        reports = (self._about(job_id, index, event="gone", **told) for index in wanted)
        return self.report(*reports)

    def start_all(self, job_id: int) -> list[int]:
        """Fetch, and report everything of the job that starts here as running."""
        self.fetch()
        started = self._indices(job_id, "starting")
        if started:
            self.up(job_id, *started)
        return started

    def stop_all(self, job_id: int) -> list[int]:
        """Fetch, and report everything of the job that should stop here as ended by TERM."""
        self.fetch()
        stopped = self._indices(job_id, "stopping")
        if stopped:
            self.gone(job_id, *stopped, exit_code=None, signal=15)
        return stopped

    def _indices(self, job_id: int, state: str) -> list[int]:
        return sorted(
            index
            for (job, index), task in self.desired.items()
            if job == job_id and task["state"] == state
        )

    def _about(self, job_id: int, index: int, **said: Any) -> dict[str, Any]:
        attempt = self.desired[job_id, index]["attempt"]
        return {"job_id": job_id, "attempt": attempt, "index": index} | said

    def _call(self, call: str, *arguments: Any) -> dict[str, Any]:
        if self._conn is None:
            self._conn = psycopg.connect(
                login_url(self.database, self.host), autocommit=True, options=NO_SEARCH_PATH
            )
        row = self._conn.execute(f"select {call}".encode(), arguments).fetchone()
        assert row is not None
        answer: dict[str, Any] = row[0]
        return answer


def add_host(database: Database, name: str, *, cpus: int = 4, mem_mib: int = 0) -> StubWorker:
    """Make a host with a login of its own and the worker that stands for it."""
    login = host_login_name(database.name, name)
    with database.connect() as conn:
        role = sql.Identifier(login)
        conn.execute(
            sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD))
        )
        conn.execute(sql.SQL("grant xce_worker to {}").format(role))
        conn.execute("select xce.add_host(%s, %s, %s, 0, '{}', %s)", (name, cpus, mem_mib, login))
    return StubWorker(database, name)


def login_url(database: Database, host: str) -> str:
    """The test's database as the host's login."""
    parts = urlsplit(database.url)
    login = quote(host_login_name(database.name, host))
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{login}:{PASSWORD}@{place}").geturl()


PASSWORD = secrets.token_urlsafe(16)
