"""Every scenario turns the same wheel over both stores and must end in the same place."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from app.db.doorbell import Doorbell
from app.db.errors import EpochOver
from app.db.pg_store import PgStore
from app.model import Policy, Resources, Snapshot, Span
from app.scheduling import Store, TickReport, tick
from tests.support.cluster import Database
from tests.support.story import Story
from tests.support.world import World


class Memory:
    """The verbs of the scenarios over the world in memory."""

    def __init__(self) -> None:
        self.world = World()
        self.store: Store = self.world

    def host(self, name: str, cpus: int) -> None:
        self.world.add_host(name, cpus, mem_mib=1000)

    def drain(self, name: str) -> None:
        self.world.host(name).is_drain_wanted = True

    def silence(self, name: str) -> None:
        self.world.host(name).is_fresh = False

    def submit(self, tasks: int, *, least: int, most: int, per_host: int | None) -> int:
        return self.world.submit(tasks, least=least, max_tasks=most, span=Span(per_host))

    def grow(self, job: int, tasks: int, *, least: int, existing: str | None) -> int:
        return self.world.grow(job, tasks, least=least, existing_hosts=existing)

    def shrink(self, job: int, index: int) -> int:
        return self.world.shrink(job, [self._task(job, index)])

    def up(self, job: int) -> None:
        self.world.bring_up(job)

    def gone(self, job: int, index: int) -> None:
        self.world.report(self._task(job, index), "gone")
        self.world.settle()

    def where(self, job: int) -> dict[str, int]:
        return self.world.where(job)

    def request(self, request_id: int) -> tuple[str, str | None]:
        request = self.world.requests[request_id]
        return request.state, request.reason if request.state == "pending" else None

    def _task(self, job: int, index: int) -> int:
        return [task.id for task in self.world.tasks.values() if task.job_id == job][index]


class Postgres:
    """The same over the database, with workers of straw."""

    def __init__(self, conn: Connection[TupleRow], store: PgStore) -> None:
        self.story = Story(conn)
        self.store: Store = store
        store.epoch = self.story.lead()

    def host(self, name: str, cpus: int) -> None:
        self.story.host(name, cpus)

    def drain(self, name: str) -> None:
        self.story.wish(name, "drain")

    def silence(self, name: str) -> None:
        self.story.conn.execute(
            "update xce.heartbeat set last_seen_at = last_seen_at - interval '1 hour'"
            " where host_id = %s",
            [self.story.hosts[name]],
        )

    def submit(self, tasks: int, *, least: int, most: int, per_host: int | None) -> int:
        span = "any" if per_host is None else {"per_host": per_host}
        return self.story.submit(tasks, tasks_min=least, max_tasks=most, span=span)

    def grow(self, job: int, tasks: int, *, least: int, existing: str | None) -> int:
        return self.story.grow(job, tasks, least=least, existing_hosts=existing)

    def shrink(self, job: int, index: int) -> int:
        return self.story.shrink(job, tasks=[index])

    def up(self, job: int) -> None:
        for name in self.story.hosts:
            self.story.fetch(name)
        starting = [i for i, state in self.story.tasks(job).items() if state == "starting"]
        self.story.up(job, *starting)

    def gone(self, job: int, index: int) -> None:
        self.story.gone(job, index)

    def where(self, job: int) -> dict[str, int]:
        rows = self.story.rows(
            "select h.name, count(*) as tasks from xce.task t join xce.host h on h.id = t.host_id"
            " where t.job_id = %s and t.is_member group by h.name",
            job,
        )
        return {row["name"]: row["tasks"] for row in rows}

    def request(self, request_id: int) -> tuple[str, str | None]:
        request = self.story.request(request_id)
        return request["state"], request["reason"] if request["state"] == "pending" else None


class Stage:
    """A scenario's way to one of the two."""

    def __init__(self, side: Memory | Postgres) -> None:
        self._side = side
        self.store = side.store
        self.drain, self.silence, self.up = side.drain, side.silence, side.up
        self.shrink, self.gone, self.where = side.shrink, side.gone, side.where
        self.request, self.host = side.request, side.host

    def submit(
        self, tasks: int, *, least: int | None = None, most: int = 100, per_host: int | None = None
    ) -> int:
        return self._side.submit(tasks, least=least or tasks, most=most, per_host=per_host)

    def grow(
        self, job: int, tasks: int, *, least: int | None = None, existing: str | None = None
    ) -> int:
        return self._side.grow(job, tasks, least=least or tasks, existing=existing)

    async def turn(self, policy: Policy = Policy()) -> TickReport:  # noqa: B008 - frozen
        """A tick all of which is accepted, after which another has nothing to do."""
        report = await tick(self.store, policy)
        assert not report.refused
        again = await tick(self.store, policy)
        assert again.decided == 0
        return report

    async def started(self, tasks: int, **terms: int) -> int:
        job = self.submit(tasks, **terms)
        await self.turn()
        self.up(job)
        return job


@contextmanager
def told_to(database: Database) -> Iterator[Connection[TupleRow]]:
    with database.connect() as conn:
        yield conn


@pytest.fixture(params=["memory", "postgres"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    if request.param == "memory":
        yield Stage(Memory())
        return
    database: Database = request.getfixturevalue("database")
    doorbell = Doorbell(database.url)
    store = PgStore(database.url, doorbell)
    with told_to(database) as conn:
        yield Stage(Postgres(conn, store))
    await store.close()
    await doorbell.close()


async def test_first_come_first_served_and_the_rest_is_told_why(stage: Stage) -> None:
    stage.host("A", 4)
    first, second, third = stage.submit(3), stage.submit(2), stage.submit(5)
    await stage.turn()
    assert stage.where(first) == {"A": 3}
    assert stage.request(2) == ("pending", "capacity")
    assert stage.request(3) == ("pending", "exceeds_cluster")
    assert stage.where(second) == stage.where(third) == {}


async def test_a_grow_and_a_shrink_travel(stage: Stage) -> None:
    stage.host("A", 4)
    stage.host("B", 4)
    job = await stage.started(2)
    grow = stage.grow(job, 3)
    await stage.turn()
    assert stage.request(grow) == ("committed", None)
    stage.up(job)
    assert stage.request(grow) == ("running", None)
    shrink = stage.shrink(job, 4)
    await stage.turn()
    assert stage.request(shrink) == ("stopping", None)
    stage.gone(job, 4)
    assert stage.request(shrink) == ("released", None)
    assert sum(stage.where(job).values()) == 4


async def test_two_grows_of_one_job_are_placed_in_one_tick(stage: Stage) -> None:
    stage.host("A", 8)
    job = await stage.started(1)
    stage.grow(job, 1)
    stage.grow(job, 2)
    assert (await stage.turn()).accepted == 2
    assert stage.where(job) == {"A": 4}


async def test_a_stop_and_a_grow_of_one_job_hold_in_one_tick(stage: Stage) -> None:
    stage.host("A", 8)
    job = await stage.started(3, most=5)
    shrink, grow = stage.shrink(job, 2), stage.grow(job, 2)
    await stage.turn()
    assert stage.request(shrink)[0] == "stopping"
    assert stage.request(grow)[0] == "committed"


async def test_stopping_tasks_hold_a_grow_back_at_the_maximum(stage: Stage) -> None:
    stage.host("A", 8)
    job = await stage.started(3, most=3)
    stage.shrink(job, 2)
    grow = stage.grow(job, 1)
    await stage.turn()
    assert stage.request(grow) == ("pending", "max_tasks")
    stage.gone(job, 2)
    await stage.turn()
    assert stage.request(grow)[0] == "committed"


async def test_a_shrink_waits_for_a_grow_it_depends_on(stage: Stage) -> None:
    stage.host("A", 8)
    job = await stage.started(2)
    grow = stage.grow(job, 1)
    await stage.turn()
    stage.gone(job, 0)
    shrink = stage.shrink(job, 1)
    await stage.turn()
    assert stage.request(shrink) == ("pending", f"after #{grow}")
    stage.up(job)
    await stage.turn()
    assert stage.request(shrink)[0] == "stopping"


async def test_a_withdrawn_task_makes_room_for_the_next_in_the_same_tick(stage: Stage) -> None:
    stage.host("A", 4)
    job = await stage.started(2)
    stage.grow(job, 2)
    await stage.turn()
    stage.shrink(job, 3)
    other = stage.submit(1)
    await stage.turn()
    assert stage.where(other) == {"A": 1}


@pytest.mark.parametrize(
    ("trouble", "reason"), [("drain", "exceeds_cluster"), ("silence", "capacity")]
)
async def test_a_host_that_is_not_fit_takes_nothing(
    stage: Stage, trouble: str, reason: str
) -> None:
    stage.host("A", 4)
    await stage.started(1)
    stage.host("B", 1)
    getattr(stage, trouble)("A")
    job = stage.submit(2)
    await stage.turn()
    assert stage.request(2) == ("pending", reason)
    assert stage.where(job) == {}


async def test_spans_partial_grants_and_existing_hosts(stage: Stage) -> None:
    for name, cpus in (("A", 8), ("B", 4), ("C", 4), ("D", 2)):
        stage.host(name, cpus)
    job = stage.submit(20, least=4, per_host=4)
    await stage.turn()
    assert stage.where(job) == {"A": 4, "B": 4, "C": 4, "D": 2}
    other = await stage.started(1)
    stage.grow(other, 2, least=1, existing="prefer")
    await stage.turn()
    assert stage.where(other) == {"A": 3}


async def test_strict_order_lets_nobody_pass(stage: Stage) -> None:
    stage.host("A", 4)
    await stage.started(2)
    stage.submit(4)
    small = stage.submit(1)
    await stage.turn(Policy("fcfs"))
    assert stage.request(3) == ("pending", "order")
    await stage.turn(Policy("first_fit"))
    assert stage.where(small) == {"A": 1}


async def test_a_snapshot_of_the_database_ascends_and_has_its_clock(database: Database) -> None:
    store = PgStore(database.url, Doorbell(database.url))
    with told_to(database) as conn:
        side = Postgres(conn, store)
        for name in ("B", "A"):
            side.host(name, 4)
        job = side.submit(2, least=1, most=4, per_host=2)
        snapshot: Snapshot = await store.snapshot()
        assert [(h.name, h.free, h.is_schedulable) for h in snapshot.hosts] == [
            ("B", Resources(4, 1000), True),
            ("A", Resources(4, 1000), True),
        ]
        assert [(j.id, j.span, j.members) for j in snapshot.jobs] == [(job, Span(per_host=2), 0)]
        [request] = snapshot.requests
        assert (request.kind, request.tasks_min, request.tasks_max) == ("start", 1, 2)
        assert snapshot.at.tzinfo is not None
        assert snapshot.taken.count(":") == 2
    await store.close()


async def test_a_leader_of_the_past_decides_nothing(database: Database) -> None:
    store = PgStore(database.url, Doorbell(database.url))
    with told_to(database) as conn:
        side = Postgres(conn, store)
        side.host("A", 4)
        job = side.submit(1, least=1, most=1, per_host=None)
        store.epoch -= 1
        with pytest.raises(EpochOver):
            await tick(store, Policy())
        assert side.where(job) == {}
    await store.close()
