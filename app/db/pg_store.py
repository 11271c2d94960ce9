"""The live world as app.scheduling sees it: one snapshot in, decisions out, on one connection."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.doorbell import Doorbell
from app.db.errors import Unavailable, translated
from app.db.statements import statement
from app.model import (
    Applied,
    Constraint,
    Host,
    JobView,
    Outcome,
    Plan,
    RequestView,
    Resources,
    ShrinkView,
    Snapshot,
    Span,
)

PARTS = ("moment", "hosts", "jobs", "tasks", "requests", "shrinks")
READ_ONLY = "set transaction isolation level repeatable read, read only"
APPLY = "select accepted, code, rings from xce.apply_plan(%s, %s::jsonb) order by ordinal"


class PgStore:
    """A Store over PostgreSQL. `epoch` is the leader's, set by whoever turns the wheel."""

    def __init__(self, url: str, doorbell: Doorbell) -> None:
        self.epoch = 0
        self._url = url
        self._doorbell = doorbell
        self._conn: AsyncConnection[TupleRow] | None = None

    async def snapshot(self) -> Snapshot:
        """Everything a tick needs, of one moment. Raises Unavailable."""
        moment, hosts, jobs, tasks, requests, shrinks = await self._read()
        [(taken, at)] = moment
        tasks_on = {job_id: _counted(members, leaving) for job_id, members, leaving in tasks}
        amounts: dict[tuple[int, int, int], Resources] = {}
        return Snapshot(
            taken,
            at,
            hosts=tuple(_host(row, amounts) for row in hosts),
            jobs=tuple(_job(row, tasks_on.get(row[0], ())) for row in jobs),
            requests=tuple(_request(row) for row in requests),
            shrinks=tuple(_shrink(row) for row in shrinks),
        )

    async def apply(self, plan: Plan) -> Applied:
        """Try the decisions in one transaction, then ring. Raises Unavailable and EpochOver."""
        rows = await self._rows(APPLY, self.epoch, msgspec.json.encode(plan).decode())
        outcomes = tuple(Outcome(accepted, code) for accepted, code, _ in rows)
        rings = tuple(rows[0][2]) if rows else ()
        await self._doorbell.ring(rings)
        return Applied(outcomes, rings)

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def _read(self) -> Sequence[Sequence[TupleRow]]:
        try:
            with translated():
                conn = await self._connected()
                # All parts travel together: one round trip instead of seven.
                async with conn.pipeline(), conn.transaction():
                    await conn.execute(READ_ONLY)
                    cursors = [await conn.execute(_part(name), binary=True) for name in PARTS]
                return [await cursor.fetchall() for cursor in cursors]
        except Unavailable:
            await self.close()
            raise

    async def _rows(self, query: str, *values: Any) -> list[TupleRow]:
        try:
            with translated():
                conn = await self._connected()
                return await (await conn.execute(query.encode(), values)).fetchall()
        except Unavailable:
            await self.close()
            raise

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._conn is None or self._conn.closed:
            self._conn = await connect(self._url, application="xce scheduler")
            self._conn.prepare_threshold = 1
        return self._conn


def _part(name: str) -> bytes:
    return statement(f"snapshot_{name}").encode()


def _host(row: TupleRow, amounts: dict[tuple[int, int, int], Resources]) -> Host:
    """`amounts` keeps those seen so far: most of ten thousand hosts have the same as others."""
    host_id, name, is_fit, labels = row[0], row[1], row[8], row[9]
    capacity, free = (
        amounts.get(amount) or amounts.setdefault(amount, Resources(*amount))
        for amount in (row[2:5], row[5:8])
    )
    return Host(
        host_id, name, capacity, free, is_fit, tuple(sorted(labels.items())) if labels else ()
    )


def _counted(
    members: list[int] | None, leaving: list[int] | None
) -> tuple[tuple[int, int, int], ...]:
    """(host id, members, leaving) ascending, from a host id for each task."""
    staying = Counter(members or ())
    if leaving is None:
        return tuple((host_id, staying[host_id], 0) for host_id in sorted(staying))
    going = Counter(leaving)
    return tuple((h, staying[h], going[h]) for h in sorted(staying.keys() | going.keys()))


def _job(row: TupleRow, tasks_on: tuple[tuple[int, int, int], ...]) -> JobView:
    job_id, version, state, min_tasks, max_tasks, cpus, mem_mib, gpus, firm, unsettled = row[:10]
    span, existing_hosts, constraints, hosts, exclude_hosts, priority, held, begin_at = row[10:]
    return JobView(
        job_id,
        version,
        state,
        min_tasks,
        max_tasks,
        Resources(cpus, mem_mib, gpus),
        members=sum(members for _, members, _ in tasks_on),
        leaving=sum(leaving for _, _, leaving in tasks_on),
        tasks_on=tasks_on,
        firm_tasks=firm,
        unsettled_id=unsettled,
        span=_span(span),
        existing_hosts=existing_hosts,
        constraints=_constraints(constraints),
        hosts=_names(hosts),
        exclude_hosts=tuple(exclude_hosts),
        priority=priority,
        held=held,
        begin_at=begin_at,
    )


def _request(row: TupleRow) -> RequestView:
    request_id, version, job_id, kind, state, tasks_min, tasks_max, hosts, exclude_hosts = row[:9]
    existing_hosts, reason, deadline_at, held_hosts, held_tasks = row[9:]
    return RequestView(
        request_id,
        version,
        job_id,
        kind,
        state,
        tasks_min,
        tasks_max,
        hosts=_names(hosts),
        exclude_hosts=tuple(exclude_hosts),
        existing_hosts=existing_hosts,
        reason=reason,
        deadline_at=deadline_at,
        holds=tuple(zip(held_hosts, held_tasks, strict=True)),
    )


def _shrink(row: TupleRow) -> ShrinkView:
    shrink_id, version, job_id, hosts, assigned, started, running, firm, reason, deadline_at = row
    return ShrinkView(
        shrink_id,
        version,
        job_id,
        named_on=tuple(zip(hosts, assigned, started, strict=True)),
        named_running=running,
        named_firm=firm,
        reason=reason,
        deadline_at=deadline_at,
    )


def _span(span: str | Mapping[str, int]) -> Span:
    if isinstance(span, str):
        return Span()
    return Span(per_host=span.get("per_host"), is_one_host="hosts" in span)


def _constraints(constraints: Mapping[str, Iterable[str]]) -> tuple[Constraint, ...]:
    return tuple(Constraint(label, tuple(values)) for label, values in sorted(constraints.items()))


def _names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
