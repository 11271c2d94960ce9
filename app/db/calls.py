"""What a caller asks of the SQL functions, and what they answer."""

from typing import Any, LiteralString

import psycopg
from msgspec import Struct, convert
from psycopg import errors
from psycopg.types.json import Jsonb

from app.db.connect import Pool
from app.db.errors import translation

#: Errors of a transaction that did nothing and may do better when it is run again. A unique
#: violation is two first calls with one idempotency key: the second one then finds the key.
PASSING = (errors.UniqueViolation, errors.SerializationFailure, errors.DeadlockDetected)
TRIES_MAX = 5


class Call(Struct, frozen=True, kw_only=True):
    """Who calls what; `key`, method, path and hash together are the idempotency key.

    `token_id` is given where the token has to be looked at again with the effect.
    """

    user_id: int
    token_id: int | None = None
    is_operator: bool
    origin: str
    key: str | None
    method: str
    path: str
    body_sha256: str


class Answer(Struct, frozen=True):
    """What the database decided: an acceptance with the resource's id, or a refusal with a code."""

    ok: bool
    rings: list[str] = []
    status: int = 200
    id: int = 0
    replay: bool = False
    code: str = ""
    detail: str = ""
    figures: dict[str, Any] = {}


async def commit_one(pool: Pool, query: LiteralString, call: Call) -> Answer:
    """Run one call as a transaction of its own. Raises Unavailable: then it may hold or not."""
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            async with pool.connection() as conn:
                return await _asked(conn, query, call)
        except psycopg.Error as error:
            if not tries_left or not isinstance(error, PASSING):
                raise translation(error) from None
    raise AssertionError("the last try answers or raises")


async def _asked(conn: psycopg.AsyncConnection[Any], query: LiteralString, call: Call) -> Answer:
    cursor = await conn.execute(query, {"call": Jsonb(call)})
    row = await cursor.fetchone()
    return convert(row[0] if row else None, Answer)
