"""Group commit: many callers, few transactions, each with its own outcome."""

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from app.db.batch import Batch, Connection
from app.db.errors import Fault, Unavailable
from tests.support.cluster import Database


async def test_what_arrives_during_a_batch_is_the_next_one(database: Database) -> None:
    sizes: list[int] = []
    gate = asyncio.Event()

    async def act(conn: Connection, items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        await gate.wait()
        return [item * 10 for item in items]

    async with running(Batch(database.url, act, application="test")) as batch:
        first = asyncio.create_task(batch.ask(1))
        while not sizes:
            await asyncio.sleep(0)
            await until_connected()
        rest = [asyncio.create_task(batch.ask(n)) for n in range(2, 6)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(first, *rest) == [10, 20, 30, 40, 50]
    assert sizes == [1, 4]


async def test_a_faulty_call_fails_alone(database: Database) -> None:
    async def act(conn: Connection, items: Sequence[int]) -> list[int]:
        cursor = await conn.execute("select 100 / n from unnest(%s::int[]) n", (list(items),))
        return [row[0] async for row in cursor]

    async with running(Batch(database.url, act, application="test")) as batch:
        answers = await asyncio.gather(*(batch.ask(n) for n in (1, 0, 4)), return_exceptions=True)
    assert (answers[0], answers[2]) == (100, 25)
    assert isinstance(answers[1], Fault)


async def test_a_unique_violation_is_run_again(database: Database) -> None:
    tries: list[int] = []

    async def act(conn: Connection, items: Sequence[int]) -> list[int]:
        tries.append(len(items))
        if len(tries) < 4:
            raise psycopg.errors.UniqueViolation("raced")
        return list(items)

    async with running(Batch(database.url, act, application="test")) as batch:
        assert await asyncio.gather(batch.ask(1), batch.ask(2)) == [1, 2]
    assert tries[0] == 2
    assert set(tries[1:]) == {1}


@pytest.mark.parametrize("is_repeatable", [False, True])
async def test_a_lost_connection_makes_the_outcome_unknown(
    database: Database, is_repeatable: bool
) -> None:
    calls: list[int] = []

    async def act(conn: Connection, items: Sequence[int]) -> list[int]:
        calls.append(len(items))
        if len(calls) == 1:
            await conn.execute("select pg_terminate_backend(pg_backend_pid())")
        return list(items)

    batch = Batch(database.url, act, application="test", is_repeatable=is_repeatable)
    async with running(batch):
        answers = await asyncio.gather(batch.ask(1), batch.ask(2), return_exceptions=True)
        assert await batch.ask(3) == 3
    if is_repeatable:
        assert answers == [1, 2]
    else:
        assert [type(answer) for answer in answers] == [Unavailable, Unavailable]


async def test_who_waits_when_it_stops_is_told(database: Database) -> None:
    async def act(conn: Connection, items: Sequence[int]) -> list[int]:
        await asyncio.Event().wait()
        return list(items)

    batch = Batch(database.url, act, application="test")
    async with running(batch):
        asked = asyncio.create_task(batch.ask(1))
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await asked


async def test_without_a_database_everybody_is_told() -> None:
    async def act(conn: Connection, items: Sequence[int]) -> list[int]:
        return list(items)

    url = "postgresql://nobody@127.0.0.1:1/none"
    async with running(Batch(url, act, application="test")) as batch:
        with pytest.raises(Unavailable):
            await batch.ask(1)


class running:
    """The batch with its loop, for as long as the block lasts."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    async def __aenter__(self) -> Batch:
        self._task = asyncio.create_task(self._batch.run())
        return self._batch

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def until_connected() -> None:
    await asyncio.sleep(0.001)
