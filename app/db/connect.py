"""Opens connections that notice a dead peer within seconds and never wait without end."""

from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool

from app.db.errors import BadAddress, translated

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

# A black-holed server is noticed after 5 + 3 × 2 s when idle, after 6 s when something was sent.
LINK = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 6000,
}
# Generic plans halve the cost of single-row calls; all our statements look rows up by key.
SESSION = {
    "search_path": "pg_catalog",
    "timezone": "UTC",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
}


async def connect(
    url: str, *, autocommit: bool = True, application: str = "xce"
) -> AsyncConnection[TupleRow]:
    """A connection of its own. Raises Unavailable."""
    with translated():
        conn = await AsyncConnection.connect(
            connection_string(url, application), autocommit=autocommit
        )
    speak_json(conn)
    return conn


def connect_now(
    url: str, *, autocommit: bool = True, application: str = "xce"
) -> Connection[TupleRow]:
    """The same for programs without an event loop. Raises Unavailable."""
    with translated():
        conn = psycopg.connect(connection_string(url, application), autocommit=autocommit)
    speak_json(conn)
    return conn


async def open_pool(url: str, *, size_max: int, application: str) -> Pool:
    """A pool of autocommit connections, opened without waiting for the database.

    It goes on trying to connect while the database is away; who asks it for a connection meanwhile
    gets Unavailable (inside `translated`) after 5 s.
    """
    pool: Pool = AsyncConnectionPool(
        connection_string(url, application),
        kwargs={"autocommit": True},
        configure=_configure,
        min_size=1,
        max_size=size_max,
        timeout=5.0,
        reconnect_timeout=3600.0,
        max_lifetime=3600.0,
        open=False,
    )
    await pool.open(wait=False)
    return pool


def connection_string(url: str, application: str) -> str:
    """The URL with what every connection of ours has; what the URL itself says goes first."""
    told = address(url)
    ours: dict[str, Any] = {**LINK, "application_name": application}
    options = f"{session_options(SESSION)} {told.pop('options', '')}".rstrip()
    return make_conninfo("", **{**ours, **told, "options": options})


def address(url: str) -> dict[str, Any]:
    """What the URL says. Raises BadAddress, which does not repeat it."""
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise BadAddress(
            "the address of the database cannot be read; it should look like "
            "postgresql://xce@127.0.0.1/xce?passfile=/etc/xce/passfile"
        ) from None


def session_options(session: Mapping[str, str]) -> str:
    """Settings as libpq's `options`, so that they hold from the first statement on."""
    return " ".join(f"-c {name}={value}" for name, value in session.items())


def speak_json(conn: AsyncConnection[TupleRow] | Connection[TupleRow]) -> None:
    """Let msgspec read and write this connection's jsonb, structs included."""
    set_json_dumps(msgspec.json.encode, conn)
    set_json_loads(msgspec.json.decode, conn)


async def _configure(conn: AsyncConnection[TupleRow]) -> None:
    speak_json(conn)
