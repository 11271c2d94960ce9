"""History as a feed: what comes after a cursor, and what ended since somebody asked."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from msgspec import UNSET, Struct
from psycopg.rows import kwargs_row

from app.db.batch import Connection
from app.db.reports import REQUESTS
from app.db.statements import statement
from app.wire.events import Event

_CURSOR = re.compile(r"([0-9]{1,10})-([0-9]{1,20})-([0-9]{1,19})", re.ASCII)
#: The largest era, transaction and row number that PostgreSQL knows.
PARTS_MAX = (2**31 - 1, 2**64 - 1, 2**63 - 1)
#: Of rows that mostly are not the caller's, this many are read at once, and so often for one page.
WINDOW_MAX = 5_000
WINDOWS_MAX = 20
#: A transaction that is open for longer holds the feed back worth mentioning.
OLD_S = 10.0


class Cursor(NamedTuple):
    """A place in the feed; places compare as the events at them."""

    era: int
    xid: int
    id: int

    def __str__(self) -> str:
        return f"{self.era}-{self.xid}-{self.id}"


START = Cursor(0, 0, 0)


class Entry(Struct, frozen=True, gc=False):
    """An event, where it is, and whose job it is of; None for a host's."""

    event: Event
    cursor: Cursor
    owner_id: int | None


class Read(NamedTuple):
    """What was read of the feed, how far that was, and whether nothing came after it."""

    entries: list[Entry]
    reached: Cursor
    is_end: bool


class Wanted(Struct, frozen=True):
    """Which events are shown: one user's, one job's; None for all."""

    user_id: int | None = None
    job_id: int | None = None

    @property
    def is_all(self) -> bool:
        return self.user_id is None and self.job_id is None

    def has(self, entry: Entry) -> bool:
        return (self.user_id is None or entry.owner_id == self.user_id) and (
            self.job_id is None or entry.event.job_id == self.job_id
        )


class End(NamedTuple):
    """The end of what the feed shows, and whether more waits for an older transaction."""

    cursor: Cursor
    is_held_back: bool


class Holder(Struct, frozen=True):
    """The transaction that holds the feed back; `pid` is null when no session has it."""

    pid: int | None
    application_name: str | None
    age_s: float


ALL = Wanted()


def cursor_of(text: str) -> Cursor:
    """The place that a cursor names. Raises ValueError."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise ValueError("no cursor of ours")
    parts = Cursor(*(int(part) for part in match.groups()))
    if any(part > most for part, most in zip(parts, PARTS_MAX, strict=True)):
        raise ValueError("no cursor of ours")
    return parts


async def read_feed(conn: Connection, after: Cursor, *, limit: int, wanted: Wanted = ALL) -> Read:
    """The next events after a cursor, at most `limit`.

    Where few rows are wanted it may stop before it has found any: then it has `reached` further.
    """
    entries: list[Entry] = []
    window = limit
    for _ in range(WINDOWS_MAX):
        read = await _read_window(conn, after, window=window, wanted=wanted)
        entries += read.entries
        after = read.reached
        if len(entries) > limit:
            return Read(entries[:limit], entries[limit - 1].cursor, is_end=False)
        if read.is_end or len(entries) == limit:
            return Read(entries, after, read.is_end)
        window = min(4 * window, WINDOW_MAX)
    return Read(entries, after, is_end=False)


async def _read_window(conn: Connection, after: Cursor, *, window: int, wanted: Wanted) -> Read:
    asked = {
        "era": after.era,
        "xid": str(after.xid),
        "id": after.id,
        "window": window,
        "user_id": wanted.user_id,
        "job_id": wanted.job_id,
    }
    async with conn.cursor(row_factory=kwargs_row(_row)) as cursor:
        await cursor.execute(statement("read_feed"), asked)
        rows = await cursor.fetchall()
    if not rows:
        return Read([], after, is_end=True)
    last, rows_read = rows[-1].entry.cursor, rows[-1].rows_read
    return Read([row.entry for row in rows if row.is_shown], last, is_end=rows_read < window)


async def feed_end(conn: Connection) -> End:
    """Behind all that the feed shows now, before all that it will show."""
    cursor = await conn.execute(statement("feed_end"))
    row = await cursor.fetchone()
    if row is None:
        raise AssertionError("the fence always has its row")
    era, xmin, is_held_back = row
    return End(Cursor(era, int(xmin), 0), is_held_back)


async def finished_requests(conn: Connection, ids: Collection[int]) -> list[int]:
    """Those of these requests that are final."""
    cursor = await conn.execute(statement("finished_requests"), {"ids": list(ids)})
    return [request_id async for (request_id,) in cursor]


async def feed_holder(conn: Connection) -> Holder | None:
    """The transaction that holds the feed back for longer than OLD_S, if there is one."""
    cursor = await conn.execute(statement("feed_holder"), {"age_s": OLD_S})
    row = await cursor.fetchone()
    return None if row is None else Holder(*row)


class _Row(NamedTuple):
    entry: Entry
    is_shown: bool
    rows_read: int


def _row(  # noqa: PLR0913 - a column each
    *,
    era: int,
    xid: str,
    id: int,
    row_id: int,
    owner_id: int | None,
    is_shown: bool,
    rows_read: int,
    task: int | None,
    host: str | None,
    **columns: Any,
) -> _Row:
    cursor = Cursor(era, int(xid), id)
    kind = columns["kind"]
    event = Event(
        **columns,
        cursor=str(cursor),
        request_id=row_id if kind in REQUESTS else UNSET,
        task=task if task is not None else UNSET,
        host=host if host is not None else UNSET,
        job=row_id if kind == "job" else UNSET,
    )
    return _Row(Entry(event, cursor, owner_id), is_shown, rows_read)
