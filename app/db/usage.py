"""Usage reports, from allocation ranges alone."""

import asyncio
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, LiteralString

from msgspec import Struct, structs
from psycopg.rows import class_row, kwargs_row

from app.db.batch import Connection
from app.db.reports import US
from app.db.statements import statement
from app.wire.reports import UsageBy, UsageItem

# Plans of reports depend on what is asked for, and their sums by job want some memory.
REPORTING = """
    set transaction isolation level repeatable read, read only;
    set local plan_cache_mode = force_custom_plan;
    set local work_mem = '64MB'
"""
CHUNK = 1_000
ZONE = "select exists (select from pg_catalog.pg_timezone_names z where z.name = %s)"


class UsageAsk(Struct, frozen=True):
    """What a report is of; a date is the beginning of that day in the time zone."""

    by: UsageBy
    tz: str
    since: date | datetime | None
    until: date | datetime | None
    sees_only: int | None


class Frame(Struct, frozen=True):
    """What a report covers. `is_backwards` and `is_too_long` say why there can be none."""

    as_of: datetime
    from_at: datetime | None
    to_at: datetime
    is_backwards: bool
    is_too_long: bool
    edges: list[datetime] | None


async def is_time_zone(conn: Connection, name: str) -> bool:
    """Whether the database knows the time zone; it reads a folder of files to tell."""
    row = await (await conn.execute(ZONE, (name,))).fetchone()
    return bool(row and row[0])


async def usage_report(conn: Connection, ask: UsageAsk) -> tuple[Frame, list[UsageItem]]:
    """The sums of each group, in one snapshot; none where the frame makes no sense."""
    async with conn.transaction():
        await conn.execute(REPORTING)
        frame = await _frame(conn, ask)
        if frame.is_backwards or frame.is_too_long:
            return frame, []
        asked = structs.asdict(frame) | structs.asdict(ask)
        async with conn.cursor(row_factory=kwargs_row(_made(ask.by))) as cursor:
            query = _query(is_cut=ask.by in {"day", "hour"})
            await cursor.execute(query, asked, prepare=False)
            items: list[UsageItem] = []
            # A report may have a hundred thousand items; the leader's loop has a lease to renew.
            while some := await cursor.fetchmany(CHUNK):
                items += some
                await asyncio.sleep(0)
            return frame, items


async def _frame(conn: Connection, ask: UsageAsk) -> Frame:
    asked: dict[str, Any] = {"by": ask.by, "tz": ask.tz}
    for name, value in (("from", ask.since), ("to", ask.until)):
        is_moment = isinstance(value, datetime)
        asked[f"{name}_at"] = value if is_moment else None
        asked[f"{name}_day"] = None if is_moment else value
    async with conn.cursor(row_factory=class_row(Frame)) as cursor:
        await cursor.execute(statement("usage_frame"), asked, prepare=False)
        frame = await cursor.fetchone()
    if frame is None:
        raise AssertionError("the frame is always one row")
    return frame


@cache
def _query(*, is_cut: bool) -> LiteralString:
    pieces = statement("usage_cut") if is_cut else statement("usage_whole")
    return statement("usage_ranges") + pieces + statement("usage_sums")


def _made(by: UsageBy) -> Any:
    def made(*, key: str, mem_peak_mib: int | None, **us: Decimal) -> UsageItem:
        sums: dict[str, Any] = {
            "task_seconds": us["task_us"] * US,
            "cpu_seconds": us["cpu_us"] * US,
            "mem_mib_seconds": us["mem_mib_us"] * US,
            "gpu_seconds": us["gpu_us"] * US,
            "cpu_used_s": us["cpu_used_us"] * US,
        }
        group: dict[str, Any] = {by: int(key) if by == "job" else key}
        return UsageItem(**group, **sums, mem_peak_mib=mem_peak_mib)

    return made
