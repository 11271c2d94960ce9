"""What the handlers stand on: the pool, one group commit a verb, and the doorbell."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

from litestar import Litestar

from app.api.feed import Feed
from app.api.last_used import LastUsed
from app.api.metrics import BATCH_CALLS
from app.api.next import resize_of
from app.api.problems import Refusal
from app.api.rates import Rates
from app.api.relaying import Relays
from app.api.stream import HEARTBEAT_S, TOKEN_CHECK_S, EventStream
from app.db.accounts import Caller, callers
from app.db.batch import Batch, Committed, Connection
from app.db.calls import Answer, Call, commit_one
from app.db.connect import Pool, open_pool
from app.db.doorbell import PLAN, Doorbell
from app.db.errors import translated
from app.db.jobs import CommandCall, jobs_by_id
from app.db.resizes import CancelCall, ResizeCall, resizes_by_id
from app.db.statements import statement
from app.runtime.stopping import cancelled
from app.wire.jobs import Job
from app.wire.resizes import Resize

#: Bearers kept in mind; the one seen longest ago goes first.
BEARERS_MAX = 4096
LAST_WORD_S = 1.0
Asked = TypeVar("Asked", bound=Call)
Resource = TypeVar("Resource")


@dataclass(frozen=True)
class ApiSettings:
    """`scheduler_wake` is called after each commit that a scheduler should see.

    It wakes the one in this process, and says whether that one leads: then no bell has to be rung
    for another, which would only make the leader look twice. `feed_poll_s` is how often the feed is
    read while somebody listens and no bell rings; `streams_max` counts for each user.
    """

    database_url: str
    scheduler_wake: Callable[[], bool] | None = None
    pool_max: int = 8
    body_bytes_max: int = 1024 * 1024
    #: Of each token.
    calls_per_s: float = 5_000
    feed_poll_s: float = 2.0
    streams_max: int = 16
    heartbeat_s: float = HEARTBEAT_S
    token_check_s: float = TOKEN_CHECK_S


class Services:
    """Open while the application lives."""

    pool: Pool

    def __init__(self, settings: ApiSettings) -> None:
        self._url = settings.database_url
        self._pool_max = settings.pool_max
        self._wake = settings.scheduler_wake
        self.rates = Rates(settings.calls_per_s)
        #: Names that the database is known to know.
        self.time_zones = {"UTC"}
        self._doorbell = Doorbell(settings.database_url)
        self.callers: Batch[bytes, Caller | None] = Batch(
            self._url, callers, application="xce api callers", is_repeatable=True
        )
        self.relays = Relays()
        self._bearers: dict[bytes, Caller] = {}
        self.feed = Feed(
            self._url,
            self.lent,
            poll_s=settings.feed_poll_s,
            streams_max=settings.streams_max,
        )
        self.stream = EventStream(
            self.feed,
            self.lent,
            heartbeat_s=settings.heartbeat_s,
            token_check_s=settings.token_check_s,
        )
        self._last_used = LastUsed()
        self.resizes = self._verb(ResizeCall, "ask_resizes", _resizes)
        self.cancels = self._verb(CancelCall, "cancel_requests", _resizes)
        self.commands = self._verb(CommandCall, "command_jobs", _jobs)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncIterator[None]:
        """Starts without the database too: then every call is answered 503 until it is back."""
        self.pool = await open_pool(self._url, size_max=self._pool_max, application="xce api")
        batches = (self.callers, self.resizes, self.cancels, self.commands)
        running = [asyncio.create_task(part.run()) for part in (*batches, self.feed)]
        running.append(asyncio.create_task(self._last_used.run(self.pool)))
        await self._doorbell.open()
        try:
            yield
        finally:
            await cancelled(*running)
            # A database that is away must not hold the end up.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    await self._last_used.write(self.pool)
            await self._doorbell.close()
            await self.pool.close()

    async def caller(self, sha256: bytes) -> Caller | None:
        """The bearer of a token as the database knows it now. Raises Unavailable."""
        found = await self.callers.ask(sha256)
        self._bearers.pop(sha256, None)
        if found is not None:
            while len(self._bearers) >= BEARERS_MAX:
                self._bearers.pop(next(iter(self._bearers)))
            self._bearers[sha256] = found
            self._last_used.note(found.token_id)
        return found

    async def believed_caller(self, sha256: bytes) -> Caller | None:
        """The bearer as last seen, for a call whose own transaction looks at the token again."""
        found = self._bearers.get(sha256)
        if found is None:
            return await self.caller(sha256)
        self._last_used.note(found.token_id)
        return found

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """A connection of the pool. Raises Unavailable, then and for what is done with it."""
        with translated():
            async with self.pool.connection() as conn:
                yield conn

    async def commit(self, query: LiteralString, call: Call) -> Answer:
        """Run one call in a transaction of its own, ring, and give its acceptance.

        Raises Refusal and Unavailable.
        """
        answer = await commit_one(self.pool, query, call)
        await self._tell([answer])
        return accepted(answer)

    def _tell(self, answers: Sequence[Answer]) -> Coroutine[Any, Any, None]:
        channels = {channel for answer in answers for channel in answer.rings}
        if PLAN in channels and self._wake is not None and self._wake():
            channels.remove(PLAN)
        return self._doorbell.ring(channels)

    def _verb(
        self,
        _: type[Asked],
        name: str,
        read: Callable[[Connection, list[int]], Awaitable[dict[int, Resource]]],
    ) -> Batch[Asked, tuple[Answer, Resource | None]]:
        calls = BATCH_CALLS.labels(name)
        committed: Committed[Asked, Resource] = Committed(
            statement(name), told=self._tell, read=read
        )

        async def act(
            conn: Connection, asked: Sequence[Asked]
        ) -> list[tuple[Answer, Resource | None]]:
            calls.observe(len(asked))
            return await committed(conn, asked)

        return Batch(self._url, act, application=f"xce api {name}")


def accepted(answer: Answer) -> Answer:
    """The answer itself where it is an acceptance. Raises Refusal where it is not."""
    if not answer.ok:
        raise Refusal(answer.code, answer.detail, **answer.figures)
    return answer


async def _resizes(conn: Connection, ids: list[int]) -> dict[int, Resize]:
    return await resizes_by_id(conn, ids, made=resize_of)


async def _jobs(conn: Connection, ids: list[int]) -> dict[int, Job]:
    return await jobs_by_id(conn, ids)
