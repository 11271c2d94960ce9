"""Usage reports against arithmetic in Python: every sum exact, in any time zone, cut anywhere."""

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

from app.db.connect import connect
from app.db.usage import UsageAsk, usage_report
from app.wire.reports import UsageItem
from tests.support.cluster import Cluster, Database

#: Some go back over midnight, skip a day, lie half or quarter hours off, shift by half an hour.
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Havana", "America/Sao_Paulo"),
    *("Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Beirut"),
)
#: Around changes of the clocks in those zones.
CENTRES = (
    *(datetime(2018, 2, 18, 2, tzinfo=UTC), datetime(2018, 11, 4, 3, tzinfo=UTC)),
    *(datetime(2021, 3, 28, 1, tzinfo=UTC), datetime(2021, 10, 31, 1, tzinfo=UTC)),
    *(datetime(2021, 11, 7, 5, tzinfo=UTC), datetime(2021, 4, 3, 15, tzinfo=UTC)),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
)
MEASURES = (
    *("task_seconds", "cpu_seconds", "mem_mib_seconds", "gpu_seconds", "cpu_used_s"),
    "mem_peak_mib",
)
JOBS, OWNERS, PROJECTS, QUEUES, HOSTS = 20, 3, 4, 2, 3
US = timedelta(microseconds=1)


class Given(NamedTuple):
    """One allocation range as it was made up."""

    job: int
    owner: str
    project: str
    queue: str
    host: str
    cpus: int
    mem_mib: int
    gpus: int
    since: datetime
    until: datetime
    cpu_used_us: int | None
    mem_peak_mib: int | None


@pytest.fixture(scope="module")
def told(cluster: Cluster, template: Database) -> Iterator[tuple[Database, list[Given]]]:
    made = cluster.create("usage", template=template.name)
    with made.connect() as conn:
        ranges = made_up(random.Random(7), conn)
    yield made, ranges
    cluster.drop(made)


@pytest.fixture
async def conn(told: tuple[Database, list[Given]]) -> Any:
    async with await connect(told[0].url) as opened:
        yield opened


def made_up(dice: random.Random, conn: Connection[TupleRow]) -> list[Given]:
    """Jobs of several owners, and ranges of theirs that begin and end at any microsecond."""
    conn.execute("set session_replication_role = replica")
    for n in range(OWNERS):
        conn.execute("select xce.add_user(%s, false, null)", (f"u{n + 1}",))
    for n in range(1, PROJECTS):
        conn.execute("insert into xce.project (name) values (%s)", (f"p{n + 1}",))
    conn.execute("insert into xce.queue (name) values ('q2')")
    for n in range(HOSTS):
        conn.execute("select xce.add_host(%s, 9, 9, 0, '{}', %s)", (f"h{n + 1}", f"l{n}"))
    for job in range(1, JOBS + 1):
        conn.execute(JOB.encode(), jobs_row(job))
    ranges = []
    for task in range(1, 301):
        job = 1 + task % JOBS
        ranges.append(one_range(dice, job))
        last = ranges[-1]
        conn.execute(
            "insert into xce.allocation values"
            " (%s, %s, 1, %s, %s, %s, %s, %s, tstzrange(%s, %s), %s, %s)",
            (
                *(task, job, task, int(last.host[1:]), last.cpus, last.mem_mib, last.gpus),
                *(last.since, last.until, last.cpu_used_us, last.mem_peak_mib),
            ),
        )
    return ranges


def jobs_row(job: int) -> dict[str, int]:
    return {"owner": 1 + job % OWNERS, "project": 1 + job % PROJECTS, "queue": 1 + job % QUEUES}


def one_range(dice: random.Random, job: int) -> Given:
    row = jobs_row(job)
    since = dice.choice(CENTRES) + timedelta(microseconds=dice.randint(-2 * 10**11, 2 * 10**11))
    longest = dice.choice([10, 10**6, 10**10, 3 * 10**11])
    is_measured = dice.random() < 0.8
    return Given(
        job=job,
        owner=f"u{row['owner']}",
        project="default" if row["project"] == 1 else f"p{row['project']}",
        queue="default" if row["queue"] == 1 else "q2",
        host=f"h{dice.randint(1, HOSTS)}",
        cpus=dice.randint(0, 64),
        # As much as makes a product with microseconds pass 2 ** 63.
        mem_mib=dice.choice([0, 1000, 2**31 - 1]),
        gpus=dice.randint(0, 2),
        since=since,
        until=since + dice.randint(1, longest) * US,
        cpu_used_us=dice.randint(0, 10**13) if is_measured else None,
        mem_peak_mib=dice.randint(0, 10**6) if is_measured else None,
    )


JOB = """
    insert into xce.job (owner_id, project_id, queue_id, state, submitted_tasks,
                         submitted_tasks_min, min_tasks, max_tasks, cpus, mem_mib, gpus, span,
                         existing_hosts, constraints, exclude_hosts, priority, ends_when,
                         on_task_failure, on_host_loss, fence, grace_s, start_s, loss_grace_s,
                         submitted_at, ended_at)
    values (%(owner)s, %(project)s, %(queue)s, 'done', 1, 1, 1, 1, 1, 0, 0, '"any"', 'any', '{}',
            '{}', 0, 'all', 'ignore', 'requeue', 'stop', 10, 60, 300, now(), now())
"""


# -- the same sums, the slow way ----------------------------------------------------------------


def expected(ranges: list[Given], ask: UsageAsk) -> dict[Any, tuple[Any, ...]]:
    low = moment(ask.since, ask.tz) or datetime.min.replace(tzinfo=UTC)
    high = moment(ask.until, ask.tz) or datetime.max.replace(tzinfo=UTC)
    sums: dict[Any, list[Any]] = defaultdict(lambda: [0, 0, 0, 0, 0, None])
    for one in ranges:
        begin, end = max(one.since, low), min(one.until, high)
        for since, until in pieces(begin, end, ask) if begin < end else ():
            us = (until - since) // US
            total = sums[key_of(one, since, ask)]
            for place, times in enumerate((1, one.cpus, one.mem_mib, one.gpus)):
                total[place] += us * times
            total[4] += used_until(one, until) - used_until(one, since)
            if one.mem_peak_mib is not None:
                total[5] = max(total[5] or 0, one.mem_peak_mib)
    return {
        key: (*(Decimal(us) / 1_000_000 for us in total[:5]), total[5])
        for key, total in sums.items()
    }


def used_until(one: Given, moment: datetime) -> int:
    whole = (one.until - one.since) // US
    return (one.cpu_used_us or 0) * ((moment - one.since) // US) // whole


def pieces(begin: datetime, end: datetime, ask: UsageAsk) -> list[tuple[datetime, datetime]]:
    """The range cut where the day or the hour on the wall's clock changes."""
    if ask.by not in {"day", "hour"}:
        return [(begin, end)]
    zone = ZoneInfo(ask.tz)
    if ask.by == "day":
        first = begin.astimezone(zone).date()
        days = ((end - begin) // timedelta(days=1)) + 3
        cuts = {moment(first + timedelta(days=n), ask.tz) for n in range(days)}
    else:
        quarters = ((end - begin) // timedelta(minutes=15)) + 8
        start = begin.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
        steps = (start + timedelta(minutes=15 * n) for n in range(quarters))
        cuts = {step for step in steps if step.astimezone(zone).minute == 0}
    inside = sorted(cut for cut in cuts if cut is not None and begin < cut < end)
    return list(pairwise([begin, *inside, end]))


def key_of(one: Given, since: datetime, ask: UsageAsk) -> Any:
    if ask.by == "day":
        return since.astimezone(ZoneInfo(ask.tz)).date().isoformat()
    if ask.by != "hour":
        return getattr(one, ask.by)
    while since.microsecond or since.second or since.astimezone(ZoneInfo(ask.tz)).minute:
        whole = since.replace(second=0, microsecond=0)
        since = whole if whole < since else since - timedelta(minutes=1)
    return since.isoformat().replace("+00:00", "Z")


def moment(at: date | datetime | None, tz: str) -> datetime | None:
    """A day begins when its date is first read off a clock: fold 0."""
    if at is None or isinstance(at, datetime):
        return at
    return datetime(at.year, at.month, at.day, tzinfo=ZoneInfo(tz)).astimezone(UTC)


def told_by(items: list[UsageItem], by: str) -> dict[Any, tuple[Any, ...]]:
    return {getattr(item, by): tuple(getattr(item, name) for name in MEASURES) for item in items}


def total_of(items: list[UsageItem]) -> tuple[Any, ...]:
    summed = (sum(getattr(item, name) for item in items) for name in MEASURES[:5])
    return (*summed, max((item.mem_peak_mib or 0 for item in items), default=0))


MOMENTS = st.builds(
    lambda centre, us: centre + us * US, st.sampled_from(CENTRES), st.integers(-(10**11), 10**11)
)
DAYS = st.builds(
    lambda centre, days: (centre + timedelta(days=days)).date(),
    st.sampled_from(CENTRES),
    st.integers(-3, 3),
)
ENDS = st.one_of(MOMENTS, DAYS)


@st.composite
def asks(draw: st.DrawFn, *kinds: str) -> UsageAsk:
    """A report of some days around a change of the clocks."""
    tz = draw(st.sampled_from(ZONES))
    since = draw(ENDS)
    begin = moment(since, tz)
    assert begin is not None
    until = begin + draw(st.integers(1, 4 * 10**11)) * US
    if draw(st.booleans()):
        until = max(until, begin + timedelta(days=1))
        day = until.astimezone(ZoneInfo(tz)).date() + timedelta(days=1)
        return UsageAsk(draw(st.sampled_from(kinds)), tz, since, day, draw(WHO))
    return UsageAsk(draw(st.sampled_from(kinds)), tz, since, until, draw(WHO))


WHO = st.sampled_from([None, None, 1, 2])
PLAIN = ("job", "owner", "project", "queue", "host")


async def compared(conn: AsyncConnection[TupleRow], ranges: list[Given], ask: UsageAsk) -> None:
    mine = [r for r in ranges if ask.sees_only is None or r.owner == f"u{ask.sees_only}"]
    _, items = await usage_report(conn, ask)
    assert told_by(items, ask.by) == expected(mine, ask)


async def test_every_sum_is_what_arithmetic_says(
    told: tuple[Database, list[Given]], conn: AsyncConnection[TupleRow]
) -> None:
    dice = random.Random(11)
    found: list[UsageAsk] = []
    made = asks(*PLAIN, "day", "day", "hour", "hour")

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @given(made)
    def gather(ask: UsageAsk) -> None:
        found.append(ask)

    gather()
    dice.shuffle(found)
    for ask in found:
        await compared(conn, told[1], ask)


async def test_totals_by_anything_are_the_same(
    told: tuple[Database, list[Given]], conn: AsyncConnection[TupleRow]
) -> None:
    everything = told[1]
    for centre in CENTRES:
        since, until = centre - timedelta(days=2, microseconds=3), centre + timedelta(hours=7)
        totals = set()
        for by in (*PLAIN, "day", "hour"):
            for tz in ZONES if by in {"day", "hour"} else ("UTC",):
                _, items = await usage_report(conn, UsageAsk(by, tz, since, until, None))
                totals.add(total_of(items))
        assert len(totals) == 1
    whole = [
        (await usage_report(conn, UsageAsk(by, "Asia/Beirut", None, None, None)))[1]
        for by in (*PLAIN, "day")
    ]
    assert len({total_of(items) for items in whole}) == 1
    us = sum((one.until - one.since) // US for one in everything)
    assert total_of(whole[0])[0] == Decimal(us) / 1_000_000
    used = sum(one.cpu_used_us or 0 for one in everything)
    assert total_of(whole[0])[4] == Decimal(used) / 1_000_000


@pytest.mark.parametrize(
    ("tz", "day", "hours"),
    [
        ("Europe/Berlin", date(2021, 3, 28), 23),
        ("Europe/Berlin", date(2021, 10, 31), 25),
        ("America/Havana", date(2021, 11, 7), 25),
        ("America/Sao_Paulo", date(2018, 2, 17), 25),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),
        ("Australia/Lord_Howe", date(2021, 4, 4), 24.5),
        ("Pacific/Apia", date(2011, 12, 30), 0),
        ("Asia/Kathmandu", date(2021, 3, 28), 24),
    ],
)
async def test_a_day_has_the_hours_that_its_zone_gives_it(
    conn: AsyncConnection[TupleRow], tz: str, day: date, hours: float
) -> None:
    cursor = await conn.execute(
        "select xce.day_begins(%s::date + 1, %s) - xce.day_begins(%s::date, %s)", (day, tz, day, tz)
    )
    assert await cursor.fetchone() == (timedelta(hours=hours),)


async def test_a_month_reads_its_index_and_not_the_table(
    told: tuple[Database, list[Given]], conn: AsyncConnection[TupleRow]
) -> None:
    from app.db.statements import statement

    with told[0].connect() as other:
        other.execute("set session_replication_role = replica")
        other.execute(
            "insert into xce.allocation select 1000 + n, 1 + n % 20, 2, n, 1, 1, 0, 0,"
            " tstzrange(s, s + interval '1 hour') from generate_series(1, 50000) as n,"
            " lateral (select timestamptz '2023-01-01' + n * interval '10 minutes') as x (s)"
        )
        other.execute("analyze xce.allocation")
    query = statement("usage_ranges") + statement("usage_whole") + statement("usage_sums")
    asked = {
        "from_at": datetime(2023, 5, 1, tzinfo=UTC),
        "to_at": datetime(2023, 6, 1, tzinfo=UTC),
        "as_of": datetime(2024, 1, 1, tzinfo=UTC),
        **{"by": "project", "tz": "UTC", "edges": None, "sees_only": None},
    }
    async with conn.transaction(force_rollback=True):
        await conn.execute("set local plan_cache_mode = force_custom_plan")
        cursor = await conn.execute(b"explain " + query.encode(), asked)
        plan = "\n".join([row[0] async for row in cursor])
    with told[0].connect() as other:
        other.execute("delete from xce.allocation where task_id > 1000")
    assert "allocation_closed_ix" in plan
    assert "allocation_open_ix" in plan
    assert "Seq Scan on allocation" not in plan
