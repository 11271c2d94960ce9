"""Logins of daemons: a role of the database, a random password, and the private file it lies in."""

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from app.db.address import url_of
from app.db.cluster_folder import write_private
from app.db.connect import address

WORKER_GROUP = "xce_worker"
CONTROLLER_GROUP = "xce_controller"
NAME_BYTES_MAX = 63


@dataclass(frozen=True)
class Login:
    """A role that may connect, and the URL that says how; the password is in the passfile."""

    name: str
    passfile: Path
    url: str


def host_login_name(database: str, host: str) -> str:
    """`<database>_host_<name>`, shortened by a digest where PostgreSQL would cut it off."""
    return fitting(f"{database}_host_{host}")


def controller_login_name(database: str) -> str:
    """`<database>_control`: of a database `xce`, the group itself is named `xce_controller`."""
    return fitting(f"{database}_control")


def fitting(name: str) -> str:
    """The name itself, or a name as unique that PostgreSQL does not truncate."""
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name.encode()[: NAME_BYTES_MAX - 17].decode(errors='ignore')}_{digest}"


def make_login(
    conn: Connection[TupleRow], name: str, *, group: str, url: str, passfile: Path
) -> Login:
    """Make the role, or give it a new password, and write that to the passfile (0600)."""
    password = secrets.token_urlsafe(32)
    # Hashed here: a statement with the password itself could end up in the server's log.
    verifier = conn.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    known = conn.execute("select from pg_catalog.pg_roles where rolname = %s", (name,)).fetchone()
    verb = sql.SQL("alter role" if known is not None else "create role")
    role = sql.Identifier(name)
    conn.execute(
        sql.SQL("{} {} login password {}").format(verb, role, sql.Literal(verifier.decode()))
    )
    conn.execute(sql.SQL("grant {} to {}").format(sql.Identifier(group), role))
    write_private(passfile, f"*:*:*:{name}:{password}\n")
    return Login(name, passfile, login_url(url, name, passfile))


def login_url(url: str, login: str, passfile: Path) -> str:
    """The same database as another role; no password in it, only where one is to be found."""
    told = {name: str(value) for name, value in address(url).items() if value is not None}
    for name in ("user", "password", "passfile"):
        told.pop(name, None)
    return url_of(login, {"passfile": str(passfile), **told})
