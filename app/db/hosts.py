"""Hosts: what the API reads and asks for."""

from psycopg.rows import class_row

from app.db.batch import Connection
from app.db.calls import Call
from app.db.connect import Pool
from app.db.logins import host_login_name
from app.db.reads import selected
from app.db.statements import statement
from app.wire.hosts import Host, HostPut


class HostCall(Call, frozen=True, kw_only=True):
    """Remove a host."""

    name: str


class PutCall(HostCall, frozen=True, kw_only=True):
    """Make a host, or give it another size; `login` is the one that a new host gets."""

    login: str
    size: HostPut


class RetireCall(HostCall, frozen=True, kw_only=True):
    """Vouch that a lost host is off."""

    confirm_dead: bool


class WishCall(HostCall, frozen=True, kw_only=True):
    """Drain a host or resume it."""

    wish: str


async def list_hosts(
    conn: Connection,
    *,
    states: list[str] | None = None,
    name: str | None = None,
    after: int = 0,
    limit: int = 1,
) -> list[Host]:
    """Hosts in ascending order of id; removed ones only where their state is asked for."""
    async with conn.cursor(row_factory=class_row(Host)) as cursor:
        await cursor.execute(
            selected("wanted_hosts", "hosts"),
            {"states": states, "name": name, "after": after, "limit": limit},
        )
        return await cursor.fetchall()


async def host_named(conn: Connection, name: str) -> Host | None:
    """The host that bears this name now."""
    found = await list_hosts(conn, name=name)
    return found[0] if found else None


async def jobs_to_shrink(conn: Connection, name: str) -> list[int]:
    """Running jobs that a shrink could take off the host of this name, ascending."""
    cursor = await conn.execute(statement("jobs_to_shrink"), {"name": name})
    return [row[0] for row in await cursor.fetchall()]


async def login_of(pool: Pool, name: str) -> str:
    """The login that `xce host add` gives to a host of this name."""
    async with pool.connection() as conn:
        return host_login_name(conn.info.dbname, name)
