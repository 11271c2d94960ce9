"""Cases H05, H15 and H49: requests that are interrupted, cancelled or repeated end once."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from app.db.doorbell import Doorbell
from app.db.pg_store import PgStore
from app.db.statements import statement, statement_names
from app.model import Policy
from app.scheduling import tick
from app.wire.resizes import ResizeAsk
from tests.scenarios.conftest import Live
from tests.support.cluster import Database
from tests.support.proxy import proxy
from tests.support.story import Story
from tests.system.processes import eventually, up

pytestmark = pytest.mark.timeout(90)

FAIL_AT = """
    create sequence public.written;
    create function public.fail_at() returns trigger language plpgsql as $$
    begin
        if pg_catalog.nextval('public.written') = %s then
            raise exception 'interrupted';
        end if;
        return new;
    end $$;
    create trigger a_fail before insert or update on xce.history
        for each row execute function public.fail_at();
    create trigger a_fail before insert or update on xce.task
        for each row execute function public.fail_at();
    create trigger a_fail before insert or update on xce.resize_request
        for each row execute function public.fail_at();
    create trigger a_fail before insert or update on xce.host
        for each row execute function public.fail_at();
    create trigger a_fail before insert or update on xce.allocation
        for each row execute function public.fail_at();
"""
HEAL = "drop function public.fail_at cascade; drop sequence public.written"


async def turn(database: Database, epoch: int) -> None:
    """One tick of a leader that died if it fails: its connection is dropped."""
    doorbell = Doorbell(database.url)
    store = PgStore(database.url, doorbell)
    store.epoch = epoch
    try:
        await tick(store, Policy())
    finally:
        await store.close()
        await doorbell.close()


def test_h05_a_grant_interrupted_at_any_write_leaves_all_or_nothing(database: Database) -> None:
    with database.connect() as conn:
        story = Story(conn)
        story.host("h1")
        job = story.running_job({"h1": 2}, max_tasks=3)
        grow = story.grow(job, 1)
        story.lead()
        interrupted = 0
        while story.request(grow)["state"] == "pending":
            interrupted += 1
            conn.execute((FAIL_AT % interrupted).encode())
            try:
                asyncio.run(turn(database, story.epoch))
            except psycopg.errors.RaiseException:
                assert story.tasks(job) == {0: "running", 1: "running"}
                assert (story.free("h1"), story.request(grow)["state"]) == (2, "pending")
            conn.execute(HEAL.encode())
        assert interrupted > 8
        assert (story.tasks(job)[2], story.free("h1")) == ("assigned", 1)
        for name in statement_names("check_"):
            assert conn.execute(statement(name)).fetchall() == []


def test_h15_cancelled_requests_are_answered_and_never_come_back(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"), "--workers", "1", "--cpus", "4")
    with up(*data) as cluster:
        live = Live(cluster)
        job = live.running("sleep", "600", max_tasks=4)
        live.operator.drain("h1")
        grow, other = live.grow(job, 1), live.submit("sleep", "1")
        eventually(lambda: live.client.request(grow.id).reason is not None, "a reason to wait")
        assert live.client.cancel(grow.id).state == "cancelled"
        assert live.client.kill(other).state == "exited"
        cluster.check()
        assert cluster.stop() < 15
    with up(*data) as cluster:
        live = Live(cluster)
        assert {job.state for job in live.client.jobs()} == {"exited"}
        assert [r.state for r in live.client.requests(job, is_all=True)] == ["running", "cancelled"]
        cluster.check()


def test_h49_a_grow_repeated_after_lost_answers_is_one_grow(live: Live) -> None:
    job = live.running("sleep", "600", max_tasks=4)
    place = urlsplit(live.cluster.told["api"])
    with proxy((str(place.hostname), int(place.port or 0))) as lossy:
        client = live.cluster.client(api=f"http://127.0.0.1:{lossy.port}")
        lossy.answers_to_lose = 3
        asked = client.resize(job, ResizeAsk(grow=1))
        assert lossy.lost == 3
    live.final(asked, "running")
    assert [request.id for request in live.client.requests(job)] == [asked.id]
    live.size(job, 2)
