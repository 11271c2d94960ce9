"""The feed as a stream: goes on where it was, and ends when it must."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import binaries, embedded
from app.db.migrate import migrate
from tests.api.streams import WRITE, listeners, page_all, ring, settled, streaming, write
from tests.api.world import Client, World, running_api, running_world
from tests.support.cluster import Database, private_folder
from tests.system.processes import eventually

REVOKE = "update xce.token set revoked_at = clock_timestamp()"


@pytest.fixture
def quick(database: Database, tmp_path: Path) -> Iterator[World]:
    """Waits for everything but bells are short; the poll does not come while a test runs."""
    settings = {"feed_poll_s": 60, "heartbeat_s": 0.2, "token_check_s": 0.2, "streams_max": 2}
    with running_world(database, tmp_path, **settings) as made:
        yield made


@pytest.fixture
def anne(quick: World) -> Client:
    return quick.user("anne")


@pytest.fixture
def job(quick: World, anne: Client) -> int:
    made = anne.post("/v1/jobs", {"command": ["true"]}).body["id"]
    settled(quick.database)
    return int(made)


def open_streams(client: Client) -> int:
    text = client.get("/metrics").body.decode()
    [line] = [line for line in text.splitlines() if line.startswith("xce_api_streams ")]
    return int(float(line.split()[1]))


def reasons(events: list[dict[str, str]]) -> list[str]:
    return [event["reason"] for event in events]


def test_what_was_comes_first_and_then_what_comes(quick: World, anne: Client, job: int) -> None:
    write(quick.database, job, *(str(n) for n in range(1_200)))
    with streaming(anne) as stream:
        assert (stream.status, stream.headers["content-type"].split(";")[0]) == (
            200,
            "text/event-stream",
        )
        stream.take(1_202)
        for n in range(3):
            write(quick.database, job, f"live {n}")
            ring(quick.database)
            stream.take(1_203 + n)
    assert stream.events == page_all(anne, limit=1_000)


def test_the_header_that_browsers_send_asks_for_a_stream(quick: World, anne: Client) -> None:
    with streaming(anne, "after=now", Accept="text/event-stream") as stream:
        anne.post("/v1/jobs", {"command": ["true"]})
        assert [event["event"] for event in stream.take(2)] == ["submit", "ask"]
    assert "items" in anne.get("/v1/events?follow=false", Accept="text/event-stream").body


def test_a_reader_resumes_by_the_last_id_that_it_got(quick: World, anne: Client, job: int) -> None:
    write(quick.database, job, *"abcdef")
    with streaming(anne, "follow=true&after=now") as stream:
        write(quick.database, job, "g", "h")
        ring(quick.database)
        [first, *_] = stream.take(2)
    write(quick.database, job, "i")
    for query in ("follow=true", "follow=true&after=now"):
        with streaming(anne, query, Last_Event_ID=first["cursor"]) as stream:
            assert reasons(stream.take(2)) == ["h", "i"]
            write(quick.database, job, "j")
            ring(quick.database)
            assert reasons(stream.take(3))[:3] == ["h", "i", "j"]
        with quick.database.connect() as conn:
            conn.execute("delete from xce.history where reason = 'j'")


def test_a_stream_skips_nothing_when_an_old_transaction_commits_late(
    quick: World, anne: Client, job: int
) -> None:
    """It ends without a bell, and the poll is far away."""
    with (
        streaming(anne, "follow=true&after=now") as stream,
        quick.database.connect(autocommit=False) as old,
    ):
        eventually(lambda: listeners(quick.database), "a listener")
        old.execute(WRITE, {"job": job, "reasons": ["early"]})
        write(quick.database, job, "late")
        ring(quick.database)
        stream.read_until(lambda s: s.comments >= 3)
        assert stream.events == []
        old.commit()
        # The pause between two looks doubles while rows wait; it ends at the poll.
        assert reasons(stream.take(2)) == ["early", "late"]


def test_foreign_events_are_never_shown(quick: World, anne: Client, job: int) -> None:
    bert, root = quick.user("bert"), quick.user("root", is_operator=True)
    with streaming(anne) as hers, streaming(bert) as his, streaming(root) as theirs:
        eventually(lambda: listeners(quick.database), "a listener")
        other = bert.post("/v1/jobs", {"command": ["true"]}).body["id"]
        quick.hosts("h1")
        write(quick.database, job, "hers")
        ring(quick.database)
        assert [event["job_id"] for event in hers.take(3)] == [job] * 3
        assert [event["job_id"] for event in his.take(2)] == [other] * 2
        assert {event.get("host") for event in theirs.take(7)} == {None, "h1"}
        with streaming(root, f"follow=true&job_id={other}") as one:
            assert {event["job_id"] for event in one.take(2)} == {other}


def test_heartbeats_come_while_nothing_happens(anne: Client) -> None:
    with streaming(anne, "follow=true&after=now") as stream:
        assert stream.read_until(lambda s: s.comments >= 4)
    assert stream.events == []


@pytest.mark.timeout(60)
def test_a_slow_reader_is_dropped_and_resumes_without_loss(
    quick: World, anne: Client, job: int
) -> None:
    count, long = 12_000, "x" * 1_000
    start = anne.get("/v1/events?after=now").body["next"]
    with streaming(anne, f"follow=true&after={start}", receive_bytes=4_096) as stream:
        eventually(lambda: listeners(quick.database), "a listener")
        for part in range(12):
            write(quick.database, job, *(f"{part * 1_000 + n} {long}" for n in range(1_000)))
            ring(quick.database)
        eventually(lambda: open_streams(anne) == 0, "the stream's end", within_s=30)
        stream.read_to_end()
    got = stream.events
    assert 0 < len(got) < count
    last = got[-1]["cursor"]
    with streaming(anne, f"follow=true&after={start}", Last_Event_ID=last) as stream:
        rest = stream.take(count - len(got), within_s=20)
    numbers = [int(reason.split()[0]) for reason in reasons(got + rest)]
    assert numbers == list(range(count))


@pytest.mark.parametrize("change", [REVOKE, REVOKE.replace("revoked_at", "expires_at")])
def test_a_token_that_is_no_longer_good_ends_its_stream(
    quick: World, anne: Client, change: str
) -> None:
    with streaming(anne) as stream:
        stream.read_until(lambda s: s.comments >= 2)
        with quick.database.connect() as conn:
            conn.execute(change.encode())
        stream.read_to_end()
    assert anne.get("/v1/events?follow=true").status == 401


def test_a_user_may_have_so_many_streams_at_once(quick: World, anne: Client) -> None:
    with streaming(anne), streaming(anne):
        reply = anne.get("/v1/events?follow=true")
        assert (reply.status, reply.code) == (429, "too_many")
        assert (reply.body["streams"], reply.body["streams_max"]) == (2, 2)
        with streaming(quick.user("bert")) as other:
            assert other.status == 200
    eventually(lambda: open_streams(anne) == 0, "their end")
    with streaming(anne) as again:
        assert again.status == 200


def test_with_nobody_there_it_neither_listens_nor_asks(database: Database, tmp_path: Path) -> None:
    with running_world(database, tmp_path, feed_poll_s=0.1) as world:
        anne = world.user("anne")
        assert listeners(world.database) == 0
        with streaming(anne):
            eventually(lambda: listeners(world.database) == 1, "a listener")
        eventually(lambda: listeners(world.database) == 0, "its end")
        assert open_streams(anne) == 0


def test_a_server_that_stops_ends_its_streams_at_once(database: Database, tmp_path: Path) -> None:
    with running_world(database, tmp_path) as world:
        context = streaming(world.user("anne"))
        stream = context.__enter__()
        stopping_s = time.monotonic()
    assert time.monotonic() - stopping_s < 1.5
    stream.read_to_end()
    context.__exit__(None, None, None)


@pytest.mark.skipif(not binaries.available(), reason="there are no PostgreSQL programs here")
@pytest.mark.timeout(60)
def test_a_stream_goes_on_when_the_database_was_away() -> None:
    with private_folder() as folder:
        server = embedded.start(folder, fast=True)
        try:
            migrate(server.url)
            database = Database("postgres", server.url)
            with running_api(server.url, feed_poll_s=60, heartbeat_s=0.2) as url:
                world = World(database, url)
                anne = world.user("anne")
                job = int(anne.post("/v1/jobs", {"command": ["true"]}).body["id"])
                settled(database)
                with streaming(anne, "follow=true&after=now") as stream:
                    write(database, job, "before")
                    ring(database)
                    stream.take(1)
                    embedded.stop(server)
                    beats = stream.comments
                    # It lives while the database does not.
                    assert stream.read_until(lambda s: s.comments > beats + 2)
                    server = embedded.start(folder, fast=True)
                    write(database, job, "after")
                    # Whether it is back before or after that, the bell or its return tells it.
                    eventually(lambda: listeners(database), "a listener that is back")
                    ring(database)
                    assert reasons(stream.take(2)) == ["before", "after"]
        finally:
            embedded.stop(server)
