"""What is run again, and where that is safe: a transaction that PostgreSQL undid did nothing."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.db.batch import Batch, Connection
from app.db.calls import TRIES_MAX, commit_one
from app.db.connect import open_pool
from app.db.errors import Unavailable
from app.db.statements import statement
from tests.support.cluster import Database
from tests.support.interleave import Two, is_waiting
from tests.support.story import JOB

HOLD = "select from xce.host where name = %s for no key update"
LONGER = "update xce.setting set value = value + 1 where name = 'key_keep_days'"


async def served(batch: Batch[int, int], *items: int) -> list[int | BaseException]:
    """What each got that asked at once."""
    serving = asyncio.create_task(batch.run())
    try:
        return await asyncio.gather(*(batch.ask(item) for item in items), return_exceptions=True)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("items", [(1,), (1, 2)])
async def test_a_call_that_lost_a_deadlock_is_run_again(
    two: Two, shared_database: Database, items: tuple[int, ...]
) -> None:
    sizes: list[int] = []
    met, crossed = asyncio.Event(), asyncio.Event()

    async def act(conn: Connection, asked: Sequence[int]) -> list[int]:
        sizes.append(len(asked))
        # The one that closes the circle looks for it, and is the victim.
        await conn.execute("set deadlock_timeout = '5ms'")
        async with conn.transaction():
            await conn.execute(HOLD, ("h2",))
            met.set()
            await crossed.wait()
            await conn.execute(HOLD, ("h1",))
        return list(asked)

    two.told.conn.execute("begin")
    two.told.conn.execute(HOLD, ("h1",))
    asking = asyncio.create_task(served(Batch(shared_database.url, act, application="t"), *items))
    await met.wait()
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(two.told.conn.execute, HOLD, ("h2",))
        assert await asyncio.to_thread(is_waiting, two.watcher, two.told.conn, holding)
        crossed.set()
        await asyncio.wrap_future(holding)
    two.told.conn.execute("commit")
    assert await asking == list(items)
    assert sizes == [len(items)] + [1] * len(items)


async def test_a_call_that_could_not_be_serialized_is_run_again(
    two: Two, shared_database: Database
) -> None:
    tries: list[int] = []

    async def act(conn: Connection, asked: Sequence[int]) -> list[int]:
        tries.append(len(asked))
        async with conn.transaction():
            await conn.execute("set transaction isolation level repeatable read")
            await conn.execute("select from xce.setting")
            if len(tries) == 1:
                two.told.conn.execute(LONGER)
            await conn.execute(LONGER)
        return list(asked)

    before = two.told.one("select value from xce.setting where name = 'key_keep_days'")
    assert await served(Batch(shared_database.url, act, application="t"), 7) == [7]
    # Its own change once and the other's once: the first try left nothing.
    after = two.told.one("select value from xce.setting where name = 'key_keep_days'")
    assert (tries, after) == ([1, 1], before + 2)


async def test_who_loses_every_time_is_told_that_it_may_try_later(
    shared_database: Database,
) -> None:
    tries: list[int] = []

    async def act(_conn: Connection, asked: Sequence[int]) -> list[int]:
        tries.append(len(asked))
        raise psycopg.errors.DeadlockDetected("lost again")

    [answer] = await served(Batch(shared_database.url, act, application="t"), 1)
    assert isinstance(answer, Unavailable)
    assert len(tries) == 1 + TRIES_MAX


async def test_a_submit_that_raced_the_first_of_its_key_answers_like_it(
    two: Two, shared_database: Database
) -> None:
    call = two.told.call("ann", "/v1/jobs", key="k", body=JOB)
    two.told.conn.execute("begin")
    first = two.told.one("select xce.submit_job(%s)", Jsonb(call))
    pool = await open_pool(shared_database.url, size_max=1, application="test")
    try:
        async with pool.connection() as conn:
            pid = conn.info.backend_pid
        repeating = asyncio.create_task(commit_one(pool, statement("submit_job"), call))
        while not two.watcher.execute(
            "select 1 from pg_catalog.pg_locks where pid = %s and not granted", (pid,)
        ).fetchone():
            await asyncio.sleep(0)
        two.told.conn.execute("commit")
        repeat = await repeating
    finally:
        await pool.close()
    assert (repeat.id, repeat.replay) == (first["id"], True)
    assert two.told.one("select count(*) from xce.job") == 1
