"""Hosts: what the API reads and asks for."""

from psycopg.rows import class_row

from app.db.batch import Connection
from app.db.calls import Call
from app.db.reads import selected
from app.wire.hosts import Host


class WishCall(Call, frozen=True, kw_only=True):
    """Drain a host or resume it."""

    name: str
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
