"""Remembers which tokens were used, and writes it down once in a while, beside the calls."""

import asyncio

from app.db.accounts import touch_tokens
from app.db.connect import Pool
from app.db.errors import DatabaseError, translated
from app.runtime.clock import elapsed_s
from app.runtime.logs import logger

#: A token in use costs one small commit in this time, however often it is used.
EVERY_S = 60.0


class LastUsed:
    """The last use of each token since the last time that it was written."""

    def __init__(self) -> None:
        self._at_s: dict[int, float] = {}

    def note(self, token_id: int) -> None:
        """It was used now."""
        self._at_s[token_id] = elapsed_s()

    async def run(self, pool: Pool) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.write(pool)

    async def write(self, pool: Pool) -> None:
        """Now. While the database is away it is kept for the next time."""
        noted, self._at_s = self._at_s, {}
        if not noted:
            return
        now_s = elapsed_s()
        ages_s = {token_id: now_s - at_s for token_id, at_s in noted.items()}
        try:
            with translated():
                async with pool.connection() as conn:
                    await touch_tokens(conn, ages_s)
        except DatabaseError as error:
            self._at_s = noted | self._at_s
            logger().warning("last_used_not_written", tokens=len(noted), detail=str(error))
