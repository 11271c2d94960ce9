"""Tokens: what the API reads and asks for."""

from msgspec import Struct, structs
from psycopg.rows import class_row

from app.db.batch import Connection
from app.db.calls import Call
from app.db.statements import statement
from app.wire.tokens import Token


class CreateCall(Call, frozen=True, kw_only=True):
    """Keep a token by its digest; the token itself does not go to the database."""

    user: str | None
    role: str
    sha256: str
    expires_in_s: float | None


class RevokeCall(Call, frozen=True, kw_only=True):
    """Make a token useless."""

    revoked_id: int


class TokenFilter(Struct, frozen=True):
    """Which tokens a list shows; None lets everything pass."""

    id: int | None = None
    user: str | None = None
    roles: list[str] | None = None
    states: list[str] | None = None


async def list_tokens(
    conn: Connection, wanted: TokenFilter, *, sees_only: int | None, after: int = 0, limit: int = 1
) -> list[Token]:
    """Tokens in ascending order of id."""
    place = {"sees_only": sees_only, "after": after, "limit": limit}
    async with conn.cursor(row_factory=class_row(Token)) as cursor:
        await cursor.execute(statement("tokens"), place | structs.asdict(wanted))
        return await cursor.fetchall()
