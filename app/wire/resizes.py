"""Resize requests as REST speaks of them."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from app.wire.fields import (
    Amount,
    Count,
    ExistingHosts,
    HostNames,
    Range,
    Seconds,
    SomeHostNames,
    SomeSeconds,
)

RequestKind = Literal["start", "grow", "shrink"]
RequestState = Literal[
    "pending", "placed", "committed", "running", "stopping", "released", "cancelled", "failed"
]
OpenState = Literal["pending", "placed", "committed", "stopping"]
FINAL_STATES = frozenset({"running", "released", "cancelled", "failed"})


class ShrinkAsk(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to release: exactly one of the three."""

    count: Count | None = None
    tasks: Annotated[list[Amount], Meta(min_length=1, max_length=100_000)] | None = None
    hosts: SomeHostNames | None = None


class ResizeAsk(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/jobs/{id}/resizes`: exactly one of `grow`, `shrink` and `to`.

    `to` is a size: it supersedes the job's waiting grows and becomes a grow or a shrink itself.
    `hosts`, `exclude_hosts` and `existing_hosts` say where a grow may go.
    """

    grow: Count | Range | None = None
    shrink: ShrinkAsk | None = None
    to: Amount | None = None
    deadline_s: SomeSeconds | None = None
    grace_s: Seconds | None = None
    hosts: SomeHostNames | None = None
    exclude_hosts: HostNames = []
    existing_hosts: ExistingHosts | None = None


class CancelAsk(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/resizes/{id}/cancel`: nothing for all of it, or how many tasks."""

    count: Count | None = None


class Next(Struct, frozen=True, gc=False):
    """What may come next, who has to move, and why."""

    may: tuple[str, ...]
    waits_on: str
    why: str


class Resize(Struct, frozen=True, gc=False):
    """A request: a grow, a shrink, or the start of an attempt."""

    id: int
    job_id: int
    attempt: int
    parent_id: int | None
    superseded_by: int | None
    deadline_at: datetime | None
    kind: RequestKind
    state: RequestState
    reason: str | None
    next: Next
    tasks_asked: int
    tasks_min: int
    tasks_max: int
    tasks_granted: int | None
    origin: str
    requested_by: str | None
    hosts: list[str]
    task_indices: list[int]
    created_at: datetime
    committed_at: datetime | None
    finished_at: datetime | None
    generation: int | None
