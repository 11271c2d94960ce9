"""Whether this release may run on the database, asked at the start of a daemon."""

import asyncio
import contextlib

from app.db.errors import Unavailable
from app.db.migrate import verify
from app.runtime.stopping import wait_for

PAUSE_S = 1.0


async def refuse_misfit(url: str) -> None:
    """Raise MigrationError where a database answers whose schema does not fit."""
    with contextlib.suppress(Unavailable):
        await asyncio.to_thread(verify, url)


async def fits(url: str, stopping: asyncio.Event) -> bool:
    """Wait for a database that answers; True when its schema fits, False when told to stop.

    Raises MigrationError where it does not fit: the daemon's supervisor starts it again.
    """
    while not stopping.is_set():
        try:
            await asyncio.to_thread(verify, url)
        except Unavailable:
            await wait_for(stopping, timeout_s=PAUSE_S)
        else:
            return True
    return False
