"""A task's output as one stream, over as many visits at its worker as that takes."""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from app.api.auth import unauthenticated
from app.api.problems import Refusal, not_found
from app.api.relaying import BrokenOffError
from app.api.stream import Lend
from app.api.worker_visit import Visited, WorkerAwayError, visit
from app.db.errors import DatabaseError, Unavailable
from app.db.tickets import GivenTicket, TicketCall, followed_task, give_ticket
from app.worker.tickets import TICKET_BYTES, AskOutput, Door, Stream, ticket_text

PART_BYTES = 64 * 1024
#: How often a follower looks whether the task has ended and the token still lives.
LOOK_S = 2.0
SILENT_S = 30.0
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0
#: A ticket is refused once where the worker registered anew just after it was given.
TRIES_MAX = 2


@dataclass(frozen=True)
class Wanted:
    """Whose output, from where, and who asks; a negative offset counts from the end."""

    token_id: int
    sees_only: int | None
    job_id: int
    index: int
    attempt: int | None
    stream: Stream
    offset: int
    limit: int | None
    follow: bool


@dataclass(frozen=True)
class Begun:
    """What is known before the first byte; `length` is None where nobody knows how many follow."""

    attempt: int
    start: int
    size: int
    length: int | None


@dataclass(frozen=True)
class _Visit:
    """A visit, and whether it sends the rest of what an ended task has written."""

    visited: Visited
    is_rest: bool


class OutputFeed:
    """Call `begin` once, then read `parts`; `close` in any case."""

    def __init__(self, lend: Lend, wanted: Wanted) -> None:
        self._lend = lend
        self._wanted = wanted
        self._attempt = wanted.attempt
        self._at = wanted.offset
        self._left = wanted.limit
        self._visit: _Visit | None = None
        self._open = AsyncExitStack()

    async def begin(self) -> Begun:
        """Raises Refusal, and Unavailable of the database."""
        self._visit = await self._visited()
        attempt = self._attempt or 0
        if self._visit is None:
            self._at = 0
            return Begun(attempt, 0, 0, None if self._wanted.follow else 0)
        told = self._visit.visited.told
        self._at = told.start
        return Begun(attempt, told.start, told.size, None if self._wanted.follow else told.length)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Everything from the start on. Raises BrokenOffError."""
        pause_s = RETRY_FIRST_S
        while True:
            if self._visit is not None:
                came_from = self._at
                async with contextlib.aclosing(self._received(self._visit)) as received:
                    async for part in received:
                        yield part
                if self._at > came_from:
                    pause_s = RETRY_FIRST_S
            if self._is_complete():
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            if not await self._went_on():
                return

    async def close(self) -> None:
        await self._open.aclose()

    # -----------------------------------------------------------------------------------------

    def _is_complete(self) -> bool:
        """Whether all that was wanted has come. Raises BrokenOffError where it never will."""
        if self._left == 0:
            return True
        if self._visit is None:
            return not self._wanted.follow
        told = self._visit.visited.told
        is_all_sent = told.length is not None and self._at - told.start >= told.length
        if not self._wanted.follow and not is_all_sent:
            raise BrokenOffError("the worker hung up")
        return is_all_sent and (self._visit.is_rest or not self._wanted.follow)

    async def _received(self, one: _Visit) -> AsyncGenerator[bytes, None]:
        """What comes until the worker hangs up, or until there is a reason to ask it anew."""
        loop = asyncio.get_running_loop()
        is_followed = one.visited.told.length is None
        patience_s = LOOK_S if is_followed else SILENT_S
        look_at = loop.time() + patience_s
        promised = one.visited.told.length
        # No more than was promised or wanted, whatever the worker sends.
        while most := min(n for n in (PART_BYTES, promised, self._left) if n is not None):
            part = await _next(one.visited.reader, most, until=look_at)
            if part:
                self._at += len(part)
                self._left = None if self._left is None else self._left - len(part)
                promised = None if promised is None else promised - len(part)
                yield part
            elif part == b"" or not is_followed:
                return
            if not is_followed or loop.time() >= look_at:
                if is_followed and await self._has_ended():
                    return
                look_at = loop.time() + patience_s

    async def _has_ended(self) -> bool:
        """Raises BrokenOffError when the follower's token has died."""
        wanted = self._wanted
        try:
            async with self._lend() as conn:
                task = await followed_task(
                    conn,
                    wanted.job_id,
                    index=wanted.index,
                    attempt=self._attempt or 0,
                    token_id=wanted.token_id,
                )
        except DatabaseError:
            # The worker sends without it, and the next look is soon.
            return False
        if not task.is_allowed:
            raise BrokenOffError("the token is dead")
        return task.is_ended

    async def _went_on(self) -> bool:
        """Visit again from where we are; False when there is nothing more to come."""
        self._visit = None
        try:
            self._visit = await self._visited()
        except Unavailable:
            return True
        except Refusal as refusal:
            match refusal.code:
                case "unavailable":
                    if await self._has_ended():
                        raise BrokenOffError(refusal.detail) from refusal
                    return True
                case "output_gone" | "not_found":
                    return False
                case _:
                    raise BrokenOffError(refusal.detail) from refusal
        if self._visit is not None and self._visit.visited.told.start != self._at:
            raise BrokenOffError("what comes next was taken out of the file")
        return True

    async def _visited(self) -> _Visit | None:
        """A visit that was answered; None where the task has not started. Raises Refusal."""
        await self._open.aclose()
        for is_last in (*(False,) * (TRIES_MAX - 1), True):
            secret = secrets.token_bytes(TICKET_BYTES)
            given = await self._given(secret)
            if given.address is None:
                return None
            ask = AskOutput(
                ticket=ticket_text(secret),
                stream=self._wanted.stream,
                offset=self._at,
                limit=self._left,
                follow=self._wanted.follow and not given.is_ended,
            )
            try:
                door = Door(given.address, given.fingerprint)
                visited = await self._open.enter_async_context(visit(door, ask))
            except WorkerAwayError as error:
                raise Refusal(
                    "unavailable", f"the task's host cannot be reached: {error}; try again later"
                ) from error
            if visited.told.ok:
                return _Visit(visited, is_rest=given.is_ended)
            await self._open.aclose()
            if visited.told.code != "refused" or is_last:
                raise _refusal(visited.told.code, visited.told.detail)
        raise AssertionError("the last try answers or raises")

    async def _given(self, secret: bytes) -> GivenTicket:
        """Raises Refusal."""
        wanted = self._wanted
        call = TicketCall(
            purpose="output",
            sees_only=wanted.sees_only,
            token_id=wanted.token_id,
            job_id=wanted.job_id,
            index=wanted.index,
            attempt=self._attempt,
            # The worker hashes what it is shown in the same way.
            sha256=hashlib.sha256(secret).hexdigest(),
        )
        async with self._lend() as conn:
            given = await give_ticket(conn, call)
        if given.ok:
            self._attempt = given.attempt
            return given
        match given.code:
            case "not_found":
                raise not_found("task")
            case "unauthenticated":
                raise unauthenticated(given.detail)
            case _:
                raise Refusal(given.code, given.detail, **given.figures)


async def _next(reader: asyncio.StreamReader, bytes_max: int, *, until: float) -> bytes | None:
    """What comes next; nothing where the worker hung up, None where it was silent for so long."""
    try:
        async with asyncio.timeout_at(until):
            return await reader.read(bytes_max)
    except TimeoutError:
        return None
    except OSError:
        return b""


def _refusal(code: str, detail: str) -> Refusal:
    if code == "gone":
        told = "it is removed some days after the job's end, and the job may remove it before"
        return Refusal("output_gone", f"the file is not there: {detail}; {told}")
    return Refusal("unavailable", f"the task's worker does not serve it now: {detail}; try again")
