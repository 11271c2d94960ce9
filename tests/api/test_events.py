"""The feed, page by page: in the order of the commits, each event exactly once."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.streams import WRITE, page_all, settled, write
from tests.api.world import Client, Reply, World
from tests.support.cluster import Cluster
from tests.system.processes import eventually

WRITERS = 8
TRANSACTIONS = 40


@pytest.fixture
def quiet_job(alice: Client) -> int:
    """A job that nothing happens to but what the test writes; its own event is the first."""
    return int(
        alice.post("/v1/jobs", {"command": ["true"], "env": {"SECRET": "s3cret"}}).body["id"]
    )


def place_of(event: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(part) for part in event["cursor"].split("-"))


def test_a_reader_that_pages_while_eight_write_sees_each_event_once_in_order(
    world: World, alice: Client, quiet_job: int
) -> None:
    def work(writer: int) -> list[str]:
        dice = random.Random(writer)
        told = []
        with world.database.connect() as conn:
            for n in range(TRANSACTIONS):
                reasons = [f"{writer}/{n}/{part}" for part in range(dice.randint(1, 3))]
                with conn.transaction():
                    conn.execute(WRITE, {"job": quiet_job, "reasons": reasons})
                    # So that later numbers commit before earlier ones, which tempts a reader.
                    conn.execute("select pg_catalog.pg_sleep(%s)", (dice.random() / 100,))
                told += reasons
        return told

    seen: list[dict[str, Any]] = []
    after = alice.get("/v1/events?after=now").body["next"]
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(work, writer) for writer in range(WRITERS)]
        pages = 0
        while True:
            is_over = all(one.done() for one in writing)
            if is_over:
                settled(world.database)
            page = alice.get(f"/v1/events?limit=5&after={after}").body
            seen += page["items"]
            pages += bool(page["items"])
            if is_over and page["next"] == after:
                break
            after = page["next"]
        written = [one.result() for one in writing]
    told = [event["reason"] for event in seen]
    assert sorted(told) == sorted(reason for one in written for reason in one)
    for writer, one in enumerate(written):
        assert [reason for reason in told if reason.startswith(f"{writer}/")] == one
    places = [place_of(event) for event in seen]
    assert places == sorted(set(places))
    assert pages > TRANSACTIONS


@pytest.mark.parametrize("ends_with", ["commit", "rollback"])
def test_nothing_is_skipped_when_an_old_transaction_commits_late(
    world: World, alice: Client, quiet_job: int, ends_with: str
) -> None:
    after = alice.get("/v1/events?after=now").body["next"]
    with world.database.connect(autocommit=False) as old:
        old.execute(WRITE, {"job": quiet_job, "reasons": ["early"]})
        write(world.database, quiet_job, "late 1")
        write(world.database, quiet_job, "late 2", "late 3")
        assert alice.get(f"/v1/events?after={after}").body == {"items": [], "next": after}
        now = alice.get("/v1/events?after=now").body["next"]
        getattr(old, ends_with)()
    settled(world.database)
    seen = [event["reason"] for event in page_all(alice, after, limit=1)]
    late = ["late 1", "late 2", "late 3"]
    assert seen == (["early", *late] if ends_with == "commit" else late)
    # Whoever began at the end of that moment misses nothing that was not shown then.
    assert [event["reason"] for event in page_all(alice, now)] == seen


def test_rows_of_earlier_eras_are_shown_whatever_their_transaction(
    world: World, alice: Client, quiet_job: int
) -> None:
    """After a restore the transactions of what was restored lie in the future."""
    with world.database.connect() as conn:
        conn.execute("update xce.history set xid = '4000000000000'")
        before = page_all(alice)
        conn.execute("update xce.fence set era = era + 1")
    assert before == []
    write(world.database, quiet_job, "of era 1, and shown for its transaction")
    settled(world.database)
    [first, *_] = restored = page_all(alice)
    assert (first["event"], first["job_id"]) == ("submit", quiet_job)
    with world.database.connect() as conn:
        conn.execute(
            WRITE.replace("r.reason, 1", "r.reason, 2"), {"job": quiet_job, "reasons": ["new"]}
        )
    settled(world.database)
    assert [event["reason"] for event in page_all(alice, restored[-1]["cursor"])] == ["new"]


def test_owners_see_their_own_jobs_and_operators_everything(
    world: World, alice: Client, bob: Client, operator: Client, job_id: int
) -> None:
    theirs = bob.post("/v1/jobs", {"command": ["true"]}).body["id"]
    alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1})
    world.start(job_id)
    settled(world.database)
    mine, other, everything = page_all(alice), page_all(bob, limit=2), page_all(operator)
    assert {event["job_id"] for event in mine} == {job_id}
    assert {event["job_id"] for event in other} == {theirs}
    hosts = [event for event in everything if event["kind"] == "host"]
    assert {event["host"] for event in hosts} == {"h1", "h2"}
    assert {event["job_id"] for event in hosts} == {None}
    of_jobs = [event for event in everything if event["kind"] != "host"]
    assert sorted(of_jobs, key=place_of) == sorted(mine + other, key=place_of)
    for event in everything:
        assert len({"request_id", "task", "host", "job"} & event.keys()) == 1
    history = alice.get(f"/v1/jobs/{job_id}/history?limit=1000").body["items"]
    keys = ("at", "kind", "source", "event", "target", "actor", "reason", "generation")
    assert sorted([event[key] for key in keys] for event in mine) == sorted(
        [item[key] for key in keys] for item in history
    )


def test_an_owner_of_little_finds_it_among_much(
    world: World, alice: Client, bob: Client, quiet_job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.db import feed

    monkeypatch.setattr(feed, "WINDOW_MAX", 50)
    monkeypatch.setattr(feed, "WINDOWS_MAX", 3)
    write(world.database, quiet_job, *(str(n) for n in range(1_000)))
    theirs = bob.post("/v1/jobs", {"command": ["true"]}).body["id"]
    settled(world.database)
    assert {event["job_id"] for event in page_all(bob)} == {theirs}
    assert bob.get(f"/v1/events?after={bob.get('/v1/events').body['next']}").body["items"] == []


def test_one_jobs_events_alone(world: World, alice: Client, bob: Client, quiet_job: int) -> None:
    other = alice.post("/v1/jobs", {"command": ["true"]}).body["id"]
    settled(world.database)
    items = alice.get(f"/v1/events?job_id={other}").body["items"]
    assert {event["job_id"] for event in items} == {other}
    for path in (f"job_id={quiet_job}", "job_id=999", "job_id=x"):
        for follow in ("", "&follow=true"):
            reply = bob.get(f"/v1/events?{path}{follow}")
            assert (reply.status, reply.code) == (404, "not_found")


def test_neither_environment_nor_command_nor_token_is_told(
    world: World, alice: Client, operator: Client
) -> None:
    alice.post("/v1/jobs", {"command": ["c0mmand"], "env": {"K": "s3cret"}})
    settled(world.database)
    for client in (alice, operator):
        text = str(client.get("/v1/events?limit=1000").body)
        assert "submit" in text
        for secret in ("c0mmand", "s3cret", *world.tokens.values()):
            assert secret not in text


def test_a_made_up_cursor_is_invalid(alice: Client) -> None:
    made_up = ("x", "", "1-2", "1-2-3-4", "-1-2-3", "1-2-x", "1-2-99999999999999999999")
    for cursor in (*made_up, "9999999999-1-1", "1-99999999999999999999-1", "1-1-%00", "1-1-%D9%A3"):
        for follow in ("", "&follow=true"):
            reply = alice.get(f"/v1/events?after={cursor}{follow}")
            assert (reply.status, reply.code) == (422, "invalid"), cursor
    reply = alice.get("/v1/events?follow=true", Last_Event_ID="nonsense")
    assert (reply.status, reply.code) == (422, "invalid")
    assert alice.get("/v1/events?follow=true&limit=3").code == "invalid"
    assert alice.get("/v1/events?from=now").code == "unknown_member"


def test_a_page_reads_no_more_than_a_page(world: World, quiet_job: int) -> None:
    """Of much history, whose statistics know nothing of most of it, over several months."""
    explain = (
        "explain (analyze, buffers, costs off, timing off, summary off, format json)"
        " select from xce.{}"
    )
    with world.database.connect() as conn:
        conn.execute("analyze xce.history")
        for part in range(20):
            write(world.database, quiet_job, *(f"{part} {n}" for n in range(1_000)))
        settled(world.database)

        def buffers(call: str) -> int:
            # Not the first: that one looks up what the catalogue knows of all partitions.
            for _ in range(3):
                row = conn.execute(explain.format(call).encode()).fetchone()
                assert row is not None
            return int(row[0][0]["Plan"]["Shared Hit Blocks"])

        for _ in range(2):
            much = buffers("read_feed(1, '0', 0, 20000)")
            assert buffers("read_feed(1, '0', 0, 10)") < much / 10
            assert buffers("held_back_since()") < much / 10
            conn.execute("analyze xce.history")


def told_of(client: Client, pid: int) -> Reply | None:
    """What /readyz says where it names this session."""
    reply = client.get("/readyz")
    held_by = reply.body.get("feed_held_by")
    return reply if held_by and held_by["pid"] == pid else None


def test_readiness_names_the_transaction_that_holds_the_feed_back(
    world: World, alice: Client, quiet_job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.db import feed

    monkeypatch.setattr(feed, "OLD_S", 0.0)
    with world.database.connect(autocommit=False) as old:
        old.execute("set application_name = 'a report'")
        old.execute(WRITE, {"job": quiet_job, "reasons": ["early"]})
        pid = old.info.backend_pid
        reply = eventually(lambda: told_of(alice, pid), "this one to be the oldest")
        held_by = reply.body["feed_held_by"]
        assert (reply.status, reply.body["status"]) == (200, "ok")
        assert held_by["application_name"] == "a report"
        assert held_by["age_s"] > 0
        monkeypatch.setattr(feed, "OLD_S", 10.0)
        assert alice.get("/readyz").body == {"status": "ok"}


def test_without_the_right_to_see_sessions_readiness_dates_by_what_waits(
    cluster: Cluster, world: World, alice: Client, quiet_job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.db import feed

    if not cluster.is_private:
        pytest.skip("it would take a right from somebody else's role")
    monkeypatch.setattr(feed, "OLD_S", 0.0)
    cluster.execute("revoke pg_read_all_stats from xce_controller")
    try:
        with world.database.connect(autocommit=False) as old:
            old.execute(WRITE, {"job": quiet_job, "reasons": ["early"]})
            assert alice.get("/readyz").body == {"status": "ok"}
            write(world.database, quiet_job, "this one waits")
            pid = old.info.backend_pid
            reply = eventually(lambda: told_of(alice, pid), "this one to be the oldest")
            held_by = reply.body["feed_held_by"]
            assert 0 < held_by["age_s"] < 10
    finally:
        cluster.execute("grant pg_read_all_stats to xce_controller")
