"""What a worker and the database say to each other, over any link that has the three verbs."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec

from app.worker.reconcile import Desired, Key, Report


class Link(Protocol):
    """Carries JSON documents: fetch what I should run, report, wait for the bell.

    Each verb raises ConnectionError when no answer came. Whether it took effect is then unknown;
    all of them may be repeated, because the database takes what it knows already as old news.
    """

    #: Set whenever there may be something to fetch; cleared by whoever waits on it.
    bell: asyncio.Event

    async def register(self, boot_id: str, version: str, live: bytes) -> bytes:
        """Begin a new incarnation; the answer says which of the living to keep."""
        ...

    async def fetch(self, incarnation: int, *, is_clear: bool) -> bytes:
        """Claim what is assigned here, send the heartbeat, and get all that should run."""
        ...

    async def report(self, incarnation: int, reports: bytes) -> bytes:
        """Say what became of tasks, in order."""
        ...


class Place(msgspec.Struct, frozen=True, gc=False):
    """A task by its numbers."""

    job_id: int
    attempt: int
    index: int


class Registered(msgspec.Struct, frozen=True):
    """The terms of a new incarnation."""

    host_id: int
    host: str
    incarnation: int
    fence_s: float
    heartbeat_s: float
    poll_s: float
    keep: tuple[Place, ...] = ()
    output_keep_days: float = 7

    @property
    def kept(self) -> frozenset[Key]:
        return frozenset(Key(p.job_id, p.attempt, p.index) for p in self.keep)


class Fetched(msgspec.Struct, frozen=True):
    """All that should run here; `stale` means that this incarnation is over.

    Only an answer that is a heartbeat renews the fence: the controller counts from no other.
    """

    stale: bool
    is_heartbeat: bool = True
    fence_s: float = 0
    tasks: tuple[Desired, ...] = ()


class Acknowledged(msgspec.Struct, frozen=True):
    """Every report of the call is known now, unless `stale`."""

    stale: bool
    accepted: int = 0
    old_news: int = 0


class Exchange:
    """The link with types: structs in, structs out."""

    def __init__(self, link: Link, *, version: str) -> None:
        self._link = link
        self._version = version

    @property
    def bell(self) -> asyncio.Event:
        return self._link.bell

    async def register(self, boot_id: str, live: Iterable[Key]) -> Registered:
        document = [
            {"job_id": key.job_id, "attempt": key.attempt, "index": key.index, "boot_id": boot_id}
            for key in live
        ]
        answer = await self._link.register(boot_id, self._version, msgspec.json.encode(document))
        return _REGISTERED.decode(answer)

    async def fetch(self, incarnation: int, *, is_clear: bool) -> Fetched:
        return _FETCHED.decode(await self._link.fetch(incarnation, is_clear=is_clear))

    async def report(self, incarnation: int, reports: list[Report]) -> Acknowledged:
        document = msgspec.json.encode(reports)
        return _ACKNOWLEDGED.decode(await self._link.report(incarnation, document))


_REGISTERED = msgspec.json.Decoder(Registered)
_FETCHED = msgspec.json.Decoder(Fetched)
_ACKNOWLEDGED = msgspec.json.Decoder(Acknowledged)
