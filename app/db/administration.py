"""First steps over the database, before any API runs: users, tokens, hosts, settings, the check."""

import hashlib
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

from psycopg import Connection
from psycopg.errors import SerializationFailure
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from app.db import logins
from app.db.cluster_folder import write_private
from app.db.connect import connect_now
from app.db.errors import translated
from app.db.logins import Login
from app.db.statements import statement, statement_names

USER_ID = "select id from xce.user_account where name = %s"
ADD_USER = "select xce.add_user(%s, %s, %s)"
ADD_TOKEN = "select xce.add_token(%s, %s, %s, %s)"
REVOKE_TOKEN = """
    update xce.token
       set revoked_at = clock_timestamp()
     where id = %s
       and revoked_at is null
 returning id
"""
SET_PATIENCE = "select set_config('statement_timeout', %s, false)"
HOST_ID = "select id from xce.host where name = %s and state <> 'removed'"
ADD_HOST = "select xce.add_host(%s, %s, %s, %s, %s, %s)"
SETTINGS = "select name, value::double precision from xce.setting order by name"
WRITE_SETTINGS = "select xce.write_settings(%s, null)"
KNOWS_TOKEN = """
    select count(*)
      from xce.token
     where user_id = %s
       and sha256 = %s
       and revoked_at is null
       and coalesce(expires_at > clock_timestamp(), true)
"""
OPEN_TASKS = """
    select count(*)
      from xce.task t
      join xce.host h on h.id = t.host_id
     where t.is_open
       and h.name = any(%s)
"""
ABANDON = "select xce.abandon_hosts(%s, %s)"
HOST_CHANNELS = """
    select 'xce_host_' || id
      from xce.host
     where state <> 'removed'
       and name = any(coalesce(%s::text[], array[name]))
     order by id
"""


HOSTS = "select name, state, incarnation, cpus from xce.host where state <> 'removed' order by id"


class Refused(Exception):
    """What was asked for makes no sense; the message says why."""


class Broken(NamedTuple):
    """A rule of DESIGN §4 that the database breaks, and where."""

    rule: str
    row: str
    what: str


class HostState(NamedTuple):
    """A host as `xce up` waits for it."""

    name: str
    state: str
    incarnation: int
    cpus: int


class UnknownTask(NamedTuple):
    """A task that lives on a host although the restored database has no open row for it."""

    host: str
    job_id: int
    attempt: int
    # The name is the domain's; nobody searches it as the tuple it is.
    index: int  # type: ignore[assignment]


class Restored(NamedTuple):
    """The time after a restore: hosts that have not reported, tasks that nobody knows."""

    is_paused: bool
    unreported: list[str]
    unknown: list[UnknownTask]


class HostSession(NamedTuple):
    """A connection of a host's worker."""

    host: str
    address: str
    pid: int


class TasksElsewhere(NamedTuple):
    """Tasks of a host that may live where its next worker cannot see them."""

    host: str
    folder: str | None
    tasks: int
    #: Until the fence has stopped them for certain; None when it never does.
    left_s: Decimal | None


@dataclass(frozen=True)
class HostSize:
    """What a host has to give."""

    cpus: int
    mem_mib: int
    gpus: int = 0


class Administration:
    """The database as its owner sees it; every method is one transaction."""

    def __init__(self, conn: Connection[TupleRow], url: str) -> None:
        self._conn = conn
        self._url = url

    @classmethod
    @contextmanager
    def open(cls, url: str, *, patience_s: float | None = None) -> Iterator["Administration"]:
        """Raises Unavailable, then and in every method that takes longer than the patience."""
        with connect_now(url, application="xce administration") as conn, translated():
            if patience_s is not None:
                conn.execute(SET_PATIENCE, (f"{max(1, round(patience_s * 1000))}ms",))
            yield cls(conn, url)

    def user_id(self, name: str) -> int | None:
        return self._number(USER_ID, name)

    def add_user(self, name: str, *, is_operator: bool = False, os_user: str | None = None) -> int:
        return self._sure_number(ADD_USER, name, is_operator, os_user)

    def add_token(
        self, user_id: int, role: str, *, path: Path, expires_at: datetime | None = None
    ) -> int:
        """Make a token and write it to a private file; the database gets only its digest."""
        token = secrets.token_urlsafe(32)
        digest = token_digest(token)
        # The file comes first: a token that nobody can read would stay valid for ever.
        write_private(path, f"{token}\n")
        return self._sure_number(ADD_TOKEN, user_id, role, digest, expires_at)

    def revoke_token(self, token_id: int) -> bool:
        """False when there is no such token, or it was revoked before."""
        return self._number(REVOKE_TOKEN, token_id) is not None

    def add_host(
        self,
        name: str,
        size: HostSize | None,
        *,
        passfile: Path,
        labels: Mapping[str, str] | None = None,
    ) -> Login:
        """Make the host and its login, or a new password for a login that is there already.

        A host that is known keeps its size and labels. Raises Refused for a new one without a size.
        """
        with self._conn.transaction():
            is_known = self._number(HOST_ID, name) is not None
            if size is None and not is_known:
                raise Refused(
                    f"there is no host {name} yet: say its size with --cpus and --mem-mib"
                )
            login = logins.make_login(
                self._conn,
                logins.host_login_name(self._conn.info.dbname, name),
                group=logins.WORKER_GROUP,
                url=self._url,
                passfile=passfile,
            )
            if size is not None and not is_known:
                amounts = (size.cpus, size.mem_mib, size.gpus)
                self._sure_number(ADD_HOST, name, *amounts, Jsonb(dict(labels or {})), login.name)
        return login

    def add_controller_login(self, passfile: Path) -> Login:
        """The login of the controllers, with a new password."""
        with self._conn.transaction():
            return logins.make_login(
                self._conn,
                logins.controller_login_name(self._conn.info.dbname),
                group=logins.CONTROLLER_GROUP,
                url=self._url,
                passfile=passfile,
            )

    def write_settings(self, changes: Mapping[str, float]) -> None:
        """Change settings together. Raises Refused when they are unknown or do not fit."""
        # JSON has no infinities: they would arrive as null and change nothing.
        endless = [name for name, value in changes.items() if not math.isfinite(value)]
        if endless:
            raise Refused(f"{', '.join(endless)} must be a number")
        row = self._conn.execute(WRITE_SETTINGS, (Jsonb(dict(changes)),)).fetchone()
        if row is not None and row[0] is not None:
            raise Refused(row[0])

    def settings(self) -> dict[str, float]:
        return dict(self._conn.execute(SETTINGS).fetchall())

    def knows_token(self, user_id: int, token: str) -> bool:
        """Whether it is this user's and valid."""
        return self._sure_number(KNOWS_TOKEN, user_id, token_digest(token)) > 0

    def kill_jobs_on(self, hosts: Sequence[str], *, grace_s: float) -> list[str]:
        """Kill every job that has tasks there, because these hosts stop; the channels to ring."""
        found = self._conn.execute(
            statement("shutdown_jobs"), {"hosts": list(hosts), "grace_s": grace_s}
        )
        return [channel for (channel,) in found.fetchall()]

    def open_tasks_on(self, hosts: Sequence[str]) -> int:
        """How many tasks there may still have a process."""
        return self._sure_number(OPEN_TASKS, list(hosts))

    def abandon_hosts(self, folders: Mapping[str, str]) -> list[str]:
        """Declare hosts lost of which nothing lives any more; the channels to ring.

        Each is named with the id of the run folder that its last worker served.
        """
        query, values = ABANDON, (list(folders), list(folders.values()))
        try:
            row = self._conn.execute(query, values).fetchone()
        except SerializationFailure:
            # A job came to one of them meanwhile: nothing was done, and now it is seen.
            row = self._conn.execute(query, values).fetchone()
        return list(row[0]) if row is not None else []

    def sessions_of(self, hosts: Sequence[str]) -> list[HostSession]:
        """Who is connected as the worker of one of these hosts."""
        found = self._conn.execute(statement("host_sessions"), {"hosts": list(hosts)})
        return [HostSession(*row) for row in found.fetchall()]

    def tasks_elsewhere(self, folders: Mapping[str, str]) -> list[TasksElsewhere]:
        """Those of these hosts that have tasks under another run folder than named here."""
        named = {"hosts": list(folders), "folders": list(folders.values())}
        found = self._conn.execute(statement("hosts_elsewhere"), named)
        return [TasksElsewhere(*row) for row in found.fetchall()]

    def host_channels(self, hosts: Sequence[str] | None = None) -> list[str]:
        """What to ring for their workers, or for all, to look at once."""
        names = None if hosts is None else list(hosts)
        found = self._conn.execute(HOST_CHANNELS, (names,)).fetchall()
        return [channel for (channel,) in found]

    def ring(self, channels: list[str]) -> None:
        """Notify these channels; the transaction that made it necessary is over."""
        query = "select pg_catalog.pg_notify(channel, '') from unnest(%s::text[]) as channel"
        self._conn.execute(query, (channels,))

    def begin_restore(self) -> None:
        """Pause after a restore; era, epoch, incarnations and numbers jump ahead."""
        self._conn.execute("select xce.begin_restore()")

    def restored(self) -> Restored:
        """How far the time after a restore is."""
        [(is_paused,)] = self._conn.execute("select xce.is_paused()").fetchall()
        hosts = self._conn.execute("select name from xce.unreported_hosts()").fetchall()
        tasks = self._conn.execute("select * from xce.unknown_tasks()").fetchall()
        return Restored(is_paused, [name for (name,) in hosts], [UnknownTask(*t) for t in tasks])

    def end_restore(self, without: Sequence[str]) -> None:
        """Go on. Raises Refused where hosts have not reported that `without` does not name."""
        row = self._conn.execute("select xce.end_restore(%s)", (list(without),)).fetchone()
        if row is not None and row[0]:
            raise Refused(
                f"{', '.join(row[0])} did not report yet: start their workers, or go on without "
                "them with --without NAME"
            )

    def hosts(self) -> list[HostState]:
        """All hosts but the removed ones."""
        return [HostState(*row) for row in self._conn.execute(HOSTS).fetchall()]

    def broken_rules(self) -> tuple[int, list[Broken]]:
        """How many rules were checked, and every row that breaks one; all in one snapshot."""
        names = statement_names("check_")
        broken: list[Broken] = []
        with self._conn.transaction():
            self._conn.execute("set transaction isolation level repeatable read, read only")
            for name in names:
                rows = self._conn.execute(statement(name)).fetchall()
                broken += [Broken(*(str(value) for value in row[:3])) for row in rows]
        return len(names), broken

    def _number(self, query: LiteralString, *values: Any) -> int | None:
        row = self._conn.execute(query, values).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def _sure_number(self, query: LiteralString, *values: Any) -> int:
        number = self._number(query, *values)
        if number is None:
            raise AssertionError(f"no answer to {query}")
        return number


def token_digest(token: str) -> bytes:
    """What the database knows of a token."""
    return hashlib.sha256(token.encode()).digest()
