"""Who calls: tokens are 256 random bits, stored and looked up as their SHA-256 only."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from app.db.batch import Connection
from app.db.statements import statement


class Caller(Struct, frozen=True):
    """The bearer of a valid token."""

    token_id: int
    user_id: int
    name: str
    role: Literal["owner", "operator", "job"]

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"

    @property
    def sees_only(self) -> int | None:
        """The user whose jobs the caller sees; an operator sees everybody's."""
        return None if self.is_operator else self.user_id


def token_sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


async def callers(conn: Connection, hashes: Sequence[bytes]) -> list[Caller | None]:
    """The bearer of each token, None where it is unknown, revoked or expired."""
    cursor = await conn.execute(statement("token_callers"), {"hashes": list(hashes)})
    found = {
        sha256: Caller(token_id=token_id, user_id=user_id, name=name, role=role)
        async for sha256, token_id, role, user_id, name in cursor
    }
    return [found.get(sha256) for sha256 in hashes]


async def touch_tokens(conn: Connection, ages_s: Mapping[int, float]) -> None:
    """Record the last use of tokens, by their ids, so many seconds ago."""
    await conn.execute(
        statement("touch_tokens"), {"ids": list(ages_s), "ages_s": list(ages_s.values())}
    )
