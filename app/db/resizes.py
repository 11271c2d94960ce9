"""Resize requests: what the API reads and asks for."""

from collections.abc import Callable

from msgspec import Struct, structs
from psycopg.rows import kwargs_row

from app.db.batch import Connection
from app.db.calls import Call
from app.db.reads import selected
from app.db.statements import statement
from app.wire.resizes import Resize

#: Makes a Resize of its columns; whoever reads adds what may come next.
Made = Callable[..., Resize]


class ResizeCall(Call, frozen=True, kw_only=True, omit_defaults=True):
    """Grow (`min`, `max`, where), shrink (one of `tasks`, `hosts`, `count`), or a size (`to`).

    `at_once`: a shrink that nothing stands against is stopped with its acceptance.
    """

    job_id: int
    if_match: int | None
    kind: str
    min: int | None = None
    max: int | None = None
    tasks: list[int] | None = None
    hosts: list[str] | None = None
    count: int | None = None
    to: int | None = None
    exclude_hosts: list[str] | None = None
    existing_hosts: str | None = None
    deadline_s: float | None = None
    grace_s: float | None = None
    at_once: bool = False


class CancelCall(Call, frozen=True, kw_only=True):
    """Take a request back, or `count` tasks of it."""

    request_id: int
    count: int | None


class ResizeFilter(Struct, frozen=True):
    """Which requests of a job a list shows: `kinds`, else grows and shrinks, or starts too."""

    job_id: int
    is_all: bool = False
    kinds: list[str] | None = None
    states: list[str] | None = None


class OpenFilter(Struct, frozen=True):
    """Which open requests a list over all jobs shows; None lets everything pass.

    `user_id` is the owner beyond whose jobs the caller sees nothing.
    """

    user_id: int | None
    kinds: list[str] | None = None
    states: list[str] | None = None


async def resizes_by_id(
    conn: Connection, ids: list[int], *, made: Made, sees_only: int | None = None
) -> dict[int, Resize]:
    """The requests of these ids that the caller may see."""
    async with conn.cursor(row_factory=kwargs_row(made)) as cursor:
        await cursor.execute(selected("wanted_ids", "resizes"), {"ids": ids, "user_id": sees_only})
        return {resize.id: resize async for resize in cursor}


async def list_resizes(
    conn: Connection, wanted: ResizeFilter, *, made: Made, after: int, limit: int
) -> list[Resize]:
    """Requests of one job in ascending order of id; the caller was seen to be allowed."""
    async with conn.cursor(row_factory=kwargs_row(made)) as cursor:
        await cursor.execute(
            selected("wanted_resizes", "resizes"),
            {
                "job_id": wanted.job_id,
                "all": wanted.is_all,
                "kinds": wanted.kinds,
                "states": wanted.states,
                "after": after,
                "limit": limit,
                "user_id": None,
            },
        )
        return await cursor.fetchall()


async def list_open_resizes(
    conn: Connection, wanted: OpenFilter, *, made: Made, after: int, limit: int
) -> list[Resize]:
    """Open requests of all jobs that the caller sees, in ascending order of id."""
    place = {"after": after, "limit": limit}
    async with conn.cursor(row_factory=kwargs_row(made)) as cursor:
        await cursor.execute(
            selected("wanted_open_resizes", "resizes"), place | structs.asdict(wanted)
        )
        return await cursor.fetchall()


async def job_of_request(conn: Connection, request_id: int, *, sees_only: int | None) -> int | None:
    """The job of a request; None where there is none that the caller may know of."""
    cursor = await conn.execute(
        statement("request_job"), {"request_id": request_id, "user_id": sees_only}
    )
    row = await cursor.fetchone()
    return row[0] if row else None
