"""History, usage and allocation: what was, from append-only rows and ranges alone."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from msgspec import UNSET, Struct
from psycopg.rows import class_row, kwargs_row

from app.db.batch import Connection
from app.db.statements import statement
from app.wire.reports import AllocatedTask, Allocation, HistoryItem, Usage

US = Decimal("0.000001")
REQUESTS = frozenset({"start", "grow", "shrink"})


class Place(Struct, frozen=True, array_like=True):
    """Where a page of history ended."""

    at: datetime
    id: int


async def history(
    conn: Connection, job_id: int, *, request_id: int | None, after: Place | None, limit: int
) -> list[tuple[HistoryItem, Place]]:
    """What happened to a job and all that is its own, or to one of its requests."""
    async with conn.cursor(row_factory=kwargs_row(_history_item)) as cursor:
        await cursor.execute(
            statement("history_of_job"),
            {
                "job_id": job_id,
                "request_id": request_id,
                "after_at": after.at if after else "-infinity",
                "after_id": after.id if after else 0,
                "limit": limit,
            },
        )
        return await cursor.fetchall()


def _history_item(
    *, row_id: int, id: int, task: int | None, **columns: Any
) -> tuple[HistoryItem, Place]:
    kind = columns["kind"]
    item = HistoryItem(
        **columns,
        request_id=row_id if kind in REQUESTS else UNSET,
        task=task if task is not None else UNSET,
        job=row_id if kind == "job" else UNSET,
    )
    return item, Place(item.at, id)


async def usage(conn: Connection, job_id: int) -> Usage:
    """What a job was given up to now; open ranges count."""
    async with conn.cursor(row_factory=kwargs_row(_usage)) as cursor:
        await cursor.execute(statement("usage_of_job"), {"job_id": job_id})
        found = await cursor.fetchone()
    if found is None:
        raise AssertionError("an aggregate always has a row")
    return found


def _usage(
    *,
    task_us: Decimal,
    cpu_us: Decimal,
    mem_mib_us: Decimal,
    gpu_us: Decimal,
    cpu_used_us: Decimal,
    **columns: Any,
) -> Usage:
    return Usage(
        **columns,
        task_seconds=task_us * US,
        cpu_seconds=cpu_us * US,
        mem_mib_seconds=mem_mib_us * US,
        gpu_seconds=gpu_us * US,
        cpu_used_s=cpu_used_us * US,
    )


async def allocation(conn: Connection, job_id: int, *, as_of: datetime | None) -> Allocation:
    """The tasks whose capacity the job has, or had at that moment."""
    asked = {"job_id": job_id, "as_of": as_of}
    cursor = await conn.execute(statement("allocation_generation"), asked)
    row = await cursor.fetchone()
    moment, generation = row if row else (as_of, 0)
    async with conn.cursor(row_factory=class_row(AllocatedTask)) as reader:
        await reader.execute(statement("allocation_of_job"), asked)
        tasks = await reader.fetchall()
    return Allocation(
        job_id=job_id,
        as_of=moment,
        generation=generation,
        hosts=sorted({task.host for task in tasks}),
        tasks=tasks,
    )
