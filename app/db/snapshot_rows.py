"""The row of sql/queries/snapshot.sql, and the Snapshot that it stands for."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from app.model import (
    Constraint,
    Host,
    JobView,
    RequestView,
    Resources,
    ShrinkView,
    Snapshot,
    Span,
)
from app.model.snapshot import ExistingHosts


class JobRow(Struct, frozen=True, gc=False):
    """A job as a column a member."""

    id: int
    version: int
    state: str
    min_tasks: int
    max_tasks: int
    cpus: int
    mem_mib: int
    gpus: int
    firm_tasks: int
    unsettled_id: int | None
    span: Literal["any"] | dict[str, int]
    existing_hosts: ExistingHosts
    constraints: dict[str, list[str]]
    hosts: tuple[str, ...] | None
    exclude_hosts: tuple[str, ...]
    priority: int
    held: bool
    begin_at: datetime | None


class TasksRow(Struct, frozen=True, gc=False):
    """The open tasks of one job: a host id for each task."""

    id: int
    members: list[int] | None
    leaving: list[int] | None


_JOBS = msgspec.json.Decoder(list[JobRow])
_TASKS = msgspec.json.Decoder(list[TasksRow])
_REQUESTS = msgspec.json.Decoder(tuple[RequestView, ...])
_SHRINKS = msgspec.json.Decoder(tuple[ShrinkView, ...])


def snapshot_of(row: tuple[Any, ...]) -> Snapshot:
    """The frozen picture of the one row that the statement answers."""
    taken, at, hosts, jobs, tasks, requests, shrinks = row
    tasks_on = {row.id: _counted(row.members, row.leaving) for row in _TASKS.decode(tasks)}
    amounts: dict[tuple[int, int, int], Resources] = {}
    return Snapshot(
        taken,
        at,
        hosts=tuple(_host(host, amounts) for host in zip(*(c or () for c in hosts), strict=True)),
        jobs=tuple(_job(job, tasks_on.get(job.id, ())) for job in _JOBS.decode(jobs)),
        requests=_REQUESTS.decode(requests),
        shrinks=_SHRINKS.decode(shrinks),
    )


def _host(row: tuple[Any, ...], amounts: dict[tuple[int, int, int], Resources]) -> Host:
    """`amounts` keeps those seen so far: most of ten thousand hosts have the same as others."""
    capacity, free = (
        amounts.get(amount) or amounts.setdefault(amount, Resources(*amount))
        for amount in (row[2:5], row[5:8])
    )
    labels = tuple(sorted(row[10].items())) if row[10] else ()
    return Host(row[0], row[1], capacity, free, row[8], row[9], labels)


def _counted(
    members: list[int] | None, leaving: list[int] | None
) -> tuple[tuple[int, int, int], ...]:
    """(host id, members, leaving) ascending, from a host id for each task."""
    staying = Counter(members or ())
    if leaving is None:
        return tuple((host_id, staying[host_id], 0) for host_id in sorted(staying))
    going = Counter(leaving)
    return tuple((h, staying[h], going[h]) for h in sorted(staying.keys() | going.keys()))


def _job(row: JobRow, tasks_on: tuple[tuple[int, int, int], ...]) -> JobView:
    return JobView(
        row.id,
        row.version,
        row.state,
        row.min_tasks,
        row.max_tasks,
        Resources(row.cpus, row.mem_mib, row.gpus),
        members=sum(members for _, members, _ in tasks_on),
        leaving=sum(leaving for _, _, leaving in tasks_on),
        tasks_on=tasks_on,
        firm_tasks=row.firm_tasks,
        unsettled_id=row.unsettled_id,
        span=_span(row.span),
        existing_hosts=row.existing_hosts,
        constraints=_constraints(row.constraints),
        hosts=row.hosts,
        exclude_hosts=row.exclude_hosts,
        priority=row.priority,
        held=row.held,
        begin_at=row.begin_at,
    )


def _span(span: str | Mapping[str, int]) -> Span:
    if isinstance(span, str):
        return Span()
    return Span(per_host=span.get("per_host"), is_one_host="hosts" in span)


def _constraints(constraints: Mapping[str, Iterable[str]]) -> tuple[Constraint, ...]:
    return tuple(Constraint(label, tuple(values)) for label, values in sorted(constraints.items()))
