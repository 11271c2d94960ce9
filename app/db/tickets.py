"""Tickets for the workers' ports: what the API asks for and is given."""

from typing import Any, NamedTuple

from msgspec import Struct, convert
from psycopg.types.json import Jsonb

from app.db.batch import Connection
from app.db.statements import statement


class TicketCall(Struct, frozen=True, kw_only=True):
    """A ticket for the worker of a task; `attempt` is the newest one where None."""

    purpose: str
    sees_only: int | None
    token_id: int
    job_id: int
    index: int
    attempt: int | None
    #: Of the secret, as hex.
    sha256: str


class GivenTicket(Struct, frozen=True):
    """Where the ticket is good; no address where the task has not started and none was made."""

    ok: bool
    attempt: int = 0
    is_ended: bool = False
    address: str | None = None
    fingerprint: str = ""
    code: str = ""
    detail: str = ""
    figures: dict[str, Any] = {}


class Followed(NamedTuple):
    """A task as its follower looks at it from time to time."""

    is_ended: bool
    is_allowed: bool


async def give_ticket(conn: Connection, call: TicketCall) -> GivenTicket:
    """A ticket, or a refusal."""
    cursor = await conn.execute(statement("give_ticket"), {"call": Jsonb(call)})
    row = await cursor.fetchone()
    return convert(row[0] if row else None, GivenTicket)


async def followed_task(
    conn: Connection, job_id: int, *, index: int, attempt: int, token_id: int
) -> Followed:
    """Whether the task has ended, and whether the follower's token still lives."""
    asked = {"job_id": job_id, "index": index, "attempt": attempt, "token_id": token_id}
    cursor = await conn.execute(statement("followed_task"), asked)
    row = await cursor.fetchone()
    return Followed(*row) if row else Followed(is_ended=True, is_allowed=False)
