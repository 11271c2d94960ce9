"""The feed of events as REST speaks of it."""

from datetime import datetime

from msgspec import UNSET, Struct, UnsetType


class Event(Struct, frozen=True, gc=False):
    """One move of one row; exactly one of `request_id`, `task` (its index), `host` and `job`.

    `cursor` is this event's place in the feed; `job_id` is null for what happened to a host.
    """

    cursor: str
    at: datetime
    kind: str
    job_id: int | None
    source: str
    event: str
    target: str
    actor: str
    reason: str | None
    generation: int | None
    attempt: int | None
    request_id: int | UnsetType = UNSET
    task: int | UnsetType = UNSET
    host: str | UnsetType = UNSET
    job: int | UnsetType = UNSET


class EventPage(Struct, frozen=True):
    """Some events, and the cursor to go on from; the one asked for again where there is no more."""

    items: list[Event]
    next: str
