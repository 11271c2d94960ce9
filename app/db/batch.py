"""Group commit: one queue and one connection; what arrives during a commit is the next batch."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, LiteralString, TypeVar

import psycopg
from msgspec import convert
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from app.db.calls import PASSING, TRIES_MAX, Answer
from app.db.connect import connect
from app.db.errors import Unavailable, fault_told, translation

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Connection = AsyncConnection[TupleRow]
Act = Callable[[Connection, Sequence[Item]], Awaitable[list[Outcome]]]
# Longer batches hold locks longer than they save commits.
SIZE_MAX = 250


class Batch(Generic[Item, Outcome]):
    """Gathers what many ask at once into one statement, and hands each its own outcome.

    `is_repeatable` says that a statement may be sent again when its outcome is unknown; only what
    changes nothing may.
    """

    def __init__(
        self, url: str, act: Act[Item, Outcome], *, application: str, is_repeatable: bool = False
    ) -> None:
        self._url = url
        self._act = act
        self._application = application
        self._is_repeatable = is_repeatable
        self._conn: Connection | None = None
        self._waiting: list[tuple[Item, asyncio.Future[Outcome]]] = []
        self._arrived = asyncio.Event()

    async def ask(self, item: Item) -> Outcome:
        """Raises Unavailable when the outcome is unknown: the idempotency key will tell."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._arrived.set()
        return await future

    async def run(self) -> None:
        """Serve for ever; when cancelled, whoever still waits gets Unavailable."""
        taken: list[tuple[Item, asyncio.Future[Outcome]]] = []
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while self._waiting:
                    taken, self._waiting = self._waiting[:SIZE_MAX], self._waiting[SIZE_MAX:]
                    await self._serve(taken)
        finally:
            _fail([*taken, *self._waiting], Unavailable("this controller is stopping"))
            await self._drop()

    async def _serve(self, taken: list[tuple[Item, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await self._done([item for item, _ in taken])
        except Unavailable as error:
            _fail(taken, error)
        except psycopg.Error as error:
            # Nothing of the batch was committed. One by one, so that a faulty call fails alone.
            if len(taken) == 1:
                await self._serve_again(taken[0], error)
            else:
                for one in taken:
                    await self._serve([one])
        else:
            for (_, future), outcome in zip(taken, outcomes, strict=True):
                _succeed(future, outcome)

    async def _serve_again(
        self, one: tuple[Item, asyncio.Future[Outcome]], error: psycopg.Error
    ) -> None:
        """Repeat a call that failed for a passing reason; what fails it for good goes to it."""
        for _ in range(TRIES_MAX):
            if not isinstance(error, PASSING):
                break
            try:
                outcomes = await self._done([one[0]])
            except Unavailable as unavailable:
                _fail([one], unavailable)
                return
            except psycopg.Error as again:
                error = again
            else:
                _succeed(one[1], outcomes[0])
                return
        _fail([one], translation(error))

    async def _done(self, items: Sequence[Item]) -> list[Outcome]:
        """Raises Unavailable where the connection was lost, psycopg.Error where it was not."""
        for is_last in (not self._is_repeatable, True):
            conn = await self._connected()
            try:
                return await self._act(conn, items)
            except psycopg.Error as error:
                if not conn.closed:
                    raise
                await self._drop()
                if is_last:
                    raise Unavailable(fault_told(error)) from None
        raise AssertionError("unreachable")

    async def _connected(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._url, application=self._application)
        return self._conn

    async def _drop(self) -> None:
        if self._conn is not None:
            with contextlib.suppress(psycopg.Error):
                await self._conn.close()
            self._conn = None


def _succeed(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    # Whoever hung up meanwhile waits no more.
    if not future.done():
        future.set_result(outcome)


def _fail(waiting: Sequence[tuple[Any, asyncio.Future[Any]]], error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)


class Committed(Generic[Item, Outcome]):
    """The act of a verb: one set-based statement that commits, then what follows a commit.

    `told(answers)` wakes whoever is here at once and gives what rings for others; `read(conn, ids)`
    gives the resources as they are now.
    """

    def __init__(
        self,
        query: LiteralString,
        *,
        told: Callable[[Sequence[Answer]], Coroutine[Any, Any, None]],
        read: Callable[[Connection, list[int]], Awaitable[dict[int, Outcome]]],
    ) -> None:
        self._query = query
        self._told = told
        self._read = read

    async def __call__(
        self, conn: Connection, calls: Sequence[Item]
    ) -> list[tuple[Answer, Outcome | None]]:
        cursor = await conn.execute(self._query, {"calls": Jsonb(calls)})
        by_ordinal = {ordinal: convert(answer, Answer) async for ordinal, answer in cursor}
        answers = [by_ordinal[ordinal] for ordinal in range(len(calls))]
        # From here on the batch is committed: no error may look as if it could be run again.
        try:
            found = await self._followed(conn, answers)
        except psycopg.Error as error:
            raise Unavailable(fault_told(error)) from None
        return [(answer, found.get(answer.id) if answer.ok else None) for answer in answers]

    async def _followed(self, conn: Connection, answers: list[Answer]) -> dict[int, Outcome]:
        accepted = sorted({answer.id for answer in answers if answer.ok})
        if not accepted:
            return {}
        ringing = asyncio.create_task(self._told(answers))
        # Whoever was woken sends its first query before we send ours: it is waited for, we are not.
        await asyncio.sleep(0)
        try:
            return await self._read(conn, accepted)
        finally:
            await ringing
