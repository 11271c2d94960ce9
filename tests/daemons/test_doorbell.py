"""Rings arrive, connections come back, and what is lost is only a hint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.db.doorbell import Doorbell, Listener
from tests.support.cluster import Database

HANG_UP = """
    select pg_catalog.pg_terminate_backend(pid)
      from pg_catalog.pg_stat_activity
     where datname = pg_catalog.current_database()
       and application_name = %s
"""


@asynccontextmanager
async def listening(database: Database, *channels: str) -> AsyncIterator[Listener]:
    """A listener that is connected: each of its events was set and waited for once."""
    listener = Listener(database.url, channels)
    running = asyncio.create_task(listener.run())
    try:
        for channel in channels:
            await rung(listener.event(channel))
        yield listener
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def rung(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()
    event.clear()


async def test_a_ring_reaches_its_channel_alone(database: Database) -> None:
    doorbell = Doorbell(database.url)
    async with listening(database, "one", "two") as listener:
        await doorbell.ring(["two"])
        await rung(listener.event("two"))
        assert not listener.event("one").is_set()
    await doorbell.close()


async def test_both_ends_come_back_when_their_connections_are_cut(database: Database) -> None:
    doorbell = Doorbell(database.url)
    await doorbell.open()
    async with listening(database, "one") as listener:
        with database.connect() as conn:
            conn.execute(HANG_UP, ("xce listener",))
            conn.execute(HANG_UP, ("xce doorbell",))
        await rung(listener.event("one"))
        await doorbell.ring(["one"])
        await rung(listener.event("one"))
    await doorbell.close()


async def test_a_ring_that_cannot_be_sent_is_no_error(database: Database) -> None:
    doorbell = Doorbell(database.url.replace(f"/{database.name}", "/nowhere"))
    await doorbell.open()
    await doorbell.ring(["one"])
    await doorbell.close()


async def test_armed_to_swallow_it_rings_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XCE_FAILPOINTS", "doorbell_swallowed")
    mute = Doorbell(database.url)
    monkeypatch.delenv("XCE_FAILPOINTS")
    loud = Doorbell(database.url)
    async with listening(database, "one", "two") as listener:
        await mute.ring(["one"])
        await loud.ring(["two"])
        await rung(listener.event("two"))
        assert not listener.event("one").is_set()
    await loud.close()
    await mute.close()
