"""What a worker and the database say to each other, over any link that has the three verbs."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec

from app.worker.reconcile import Desired, Key, Report
from app.worker.tickets import Door, Ticket


class Link(Protocol):
    """Carries JSON documents: fetch what I should run, report, wait for the bell.

    Beside these it redeems tickets.

    Each verb raises ConnectionError when no answer came. Whether it took effect is then unknown;
    all of them may be repeated, because the database takes what it knows already as old news.
    """

    #: Set whenever there may be something to fetch; cleared by whoever waits on it.
    bell: asyncio.Event

    async def register(
        self,
        boot_id: str,
        version: str,
        live: bytes,
        *,
        folder: str,
        door: tuple[str, str] | None = None,
    ) -> bytes:
        """Begin a new incarnation; the answer says which of the living to keep.

        `door` is the address of the host's port and the fingerprint of its certificate.
        """
        ...

    async def fetch(
        self, incarnation: int, *, is_clear: bool, fence_s: float | None, is_full: bool
    ) -> bytes:
        """Claim what is assigned here, send the heartbeat, and get all that should run.

        `fence_s` is what the keeper is known to count its fence with; None where nobody knows.
        Unless `is_full`, what runs is named by its id alone.
        """
        ...

    async def report(self, incarnation: int, reports: bytes) -> bytes:
        """Say what became of tasks, in order."""
        ...

    async def redeem(self, incarnation: int, sha256: bytes) -> bytes | None:
        """What a ticket shown at this host's port is good for, once; None for no valid one.

        Never waits for the other verbs, nor they for it.
        """
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
    keep: tuple[Place, ...] = ()

    @property
    def kept(self) -> frozenset[Key]:
        return frozenset(Key(p.job_id, p.attempt, p.index) for p in self.keep)


class Fetched(msgspec.Struct, frozen=True):
    """All that should run here; `stale` means that this incarnation is over.

    Only an answer that is a heartbeat renews the fence: the controller counts from no other. The
    settings are those of the moment, so that a change of one holds within an exchange. `is_paused`:
    the database was restored and does not know yet what should run, so nothing is to be changed.
    Unless it was asked for in full, `running` are the ids of tasks that were told earlier.
    """

    stale: bool
    is_paused: bool = False
    is_heartbeat: bool = True
    fence_s: float = 0
    heartbeat_s: float = 5
    poll_s: float = 5
    output_keep_days: float = 7
    output_max_mib: float = 256
    output_keep_mib: float = 64
    tasks: tuple[Desired, ...] = ()
    running: tuple[int, ...] = ()


class Acknowledged(msgspec.Struct, frozen=True):
    """Every report of the call is known now, unless `stale`."""

    stale: bool
    accepted: int = 0
    old_news: int = 0


class Exchange:
    """The link with types: structs in, structs out."""

    def __init__(self, link: Link, *, version: str, folder: str, door: Door | None = None) -> None:
        self._link = link
        self._version = version
        self._folder = folder
        self._door = door

    @property
    def bell(self) -> asyncio.Event:
        return self._link.bell

    async def register(self, boot_id: str, live: Iterable[Key]) -> Registered:
        document = [
            {"job_id": key.job_id, "attempt": key.attempt, "index": key.index, "boot_id": boot_id}
            for key in live
        ]
        live_here = msgspec.json.encode(document)
        answer = await self._link.register(
            boot_id, self._version, live_here, folder=self._folder, door=self._door
        )
        return _REGISTERED.decode(answer)

    async def fetch(
        self, incarnation: int, *, is_clear: bool, fence_s: float | None, is_full: bool
    ) -> Fetched:
        answer = await self._link.fetch(
            incarnation, is_clear=is_clear, fence_s=fence_s, is_full=is_full
        )
        return _FETCHED.decode(answer)

    async def report(self, incarnation: int, reports: list[Report]) -> Acknowledged:
        document = msgspec.json.encode(reports)
        return _ACKNOWLEDGED.decode(await self._link.report(incarnation, document))

    async def redeem(self, incarnation: int, sha256: bytes) -> Ticket | None:
        answer = await self._link.redeem(incarnation, sha256)
        return None if answer is None else _TICKET.decode(answer)


_REGISTERED = msgspec.json.Decoder(Registered)
_FETCHED = msgspec.json.Decoder(Fetched)
_ACKNOWLEDGED = msgspec.json.Decoder(Acknowledged)
_TICKET = msgspec.json.Decoder(Ticket)
