"""Settings: what the API reads and asks for."""

from psycopg.rows import class_row

from app.db.batch import Connection
from app.db.calls import Call
from app.db.statements import statement
from app.wire.settings import Setting


class SettingCall(Call, frozen=True, kw_only=True):
    """Change one setting."""

    name: str
    value: float


async def list_settings(conn: Connection) -> list[Setting]:
    """All settings by name."""
    async with conn.cursor(row_factory=class_row(Setting)) as cursor:
        await cursor.execute(statement("settings"))
        return await cursor.fetchall()
