"""What was: history, usage and allocation as REST speaks of them."""

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from app.wire.fields import Exact


class HistoryItem(Struct, frozen=True, gc=False):
    """One move of one row; exactly one of `request_id`, `task` (its index) and `job` is there."""

    at: datetime
    kind: str
    source: str
    event: str
    target: str
    actor: str
    reason: str | None
    detail: Any
    generation: int | None
    attempt: int | None
    since_previous_s: Exact | None
    request_id: int | UnsetType = UNSET
    task: int | UnsetType = UNSET
    job: int | UnsetType = UNSET


class Usage(Struct, frozen=True, gc=False):
    """What a job was given up to `as_of`, exact to the microsecond, and what it made of it."""

    job_id: int
    as_of: datetime
    task_seconds: Exact
    cpu_seconds: Exact
    mem_mib_seconds: Exact
    gpu_seconds: Exact
    cpu_used_s: Exact
    mem_peak_mib: int | None


UsageBy = Literal["job", "owner", "project", "queue", "host", "day", "hour"]


class UsageItem(Struct, frozen=True, kw_only=True, gc=False):
    """Sums of one group, exact to the microsecond; the member named as `by` says whose.

    `day` is a date in the report's time zone, `hour` the moment at which it began.
    """

    job: int | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    project: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    day: str | UnsetType = UNSET
    hour: str | UnsetType = UNSET
    task_seconds: Exact
    cpu_seconds: Exact
    mem_mib_seconds: Exact
    gpu_seconds: Exact
    cpu_used_s: Exact
    mem_peak_mib: int | None


class UsageReport(Struct, frozen=True, rename={"from_at": "from", "to_at": "to"}):
    """What was given in [from, to), which ends at `as_of` at the latest; `next` is always null."""

    by: UsageBy
    tz: str
    from_at: datetime | None
    to_at: datetime
    as_of: datetime
    items: list[UsageItem]
    next: str | None = None


class AllocatedTask(Struct, frozen=True, gc=False):
    """A task whose capacity the job had at the asked moment; `until` null while it still has."""

    index: int
    attempt: int
    host: str
    cpus: int
    mem_mib: int
    gpus: int
    since: datetime
    until: datetime | None


class Allocation(Struct, frozen=True, gc=False):
    """The tasks a job had at one moment, and the generation that was."""

    job_id: int
    as_of: datetime
    generation: int
    hosts: list[str]
    tasks: list[AllocatedTask]
