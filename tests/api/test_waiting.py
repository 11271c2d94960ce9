"""`…/wait`: at once, by the bell, by the poll, or when the time is up."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.api.streams import listeners, ring
from tests.api.world import Client, Reply, World, running_world
from tests.support.cluster import Database
from tests.system.processes import eventually

POLL_S = 0.5


@pytest.fixture(params=[60.0, POLL_S])
def waiting_world(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> Iterator[tuple[World, float]]:
    with running_world(database, tmp_path, feed_poll_s=request.param) as made:
        yield made, request.param


def running_job(world: World, client: Client) -> int:
    if not world.workers:
        world.hosts("h1")
    body = {"command": ["true"], "tasks": 1, "min_tasks": 1, "max_tasks": 4}
    job_id = int(client.post("/v1/jobs", body).body["id"])
    world.start(job_id)
    return job_id


def timed(client: Client, path: str) -> tuple[Reply, float]:
    started_s = time.monotonic()
    return client.get(path), time.monotonic() - started_s


def test_a_final_request_is_answered_at_once(world: World, alice: Client, job_id: int) -> None:
    made = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body
    alice.post(f"/v1/resizes/{made['id']}/cancel")
    reply, took_s = timed(alice, f"/v1/resizes/{made['id']}/wait")
    assert (reply.status, reply.body["state"]) == (200, "cancelled")
    assert took_s < 1
    assert reply.body == alice.get(f"/v1/resizes/{made['id']}").body
    assert listeners(world.database) == 0


def test_it_is_answered_as_it_is_when_the_time_is_up(alice: Client, job_id: int) -> None:
    made = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body
    reply, took_s = timed(alice, f"/v1/resizes/{made['id']}/wait?timeout_s=0.3")
    assert (reply.status, reply.body["state"]) == (200, "pending")
    assert 0.3 <= took_s < 3
    assert alice.get(f"/v1/resizes/{made['id']}/wait?timeout_s=0").body["state"] == "pending"


def test_a_request_that_becomes_final_is_answered_by_the_bell_or_else_by_the_poll(
    waiting_world: tuple[World, float],
) -> None:
    world, poll_s = waiting_world
    alice = world.user("alice")
    jobs = [running_job(world, alice) for _ in range(2)]
    ids = [alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body["id"] for job_id in jobs]
    with ThreadPoolExecutor(2) as pool:
        waits: list[Future[Reply]] = [
            pool.submit(alice.get, f"/v1/resizes/{number}/wait") for number in ids
        ]
        eventually(lambda: listeners(world.database) == 1, "one listener for both")
        # Nobody rings here: neither the leader nor the workers of straw do.
        started_s = time.monotonic()
        world.place()
        for job_id in jobs:
            world.converge(job_id)
        if poll_s > 1:
            ring(world.database)
        replies = [wait.result(10) for wait in waits]
        took_s = time.monotonic() - started_s
    assert [reply.body["state"] for reply in replies] == ["running", "running"]
    assert all(reply.body["finished_at"] for reply in replies)
    # Of the poll, and as much again for two slow cores and what was done meanwhile.
    assert took_s < 4 * POLL_S
    eventually(lambda: listeners(world.database) == 0 or poll_s > 1, "the listener's end")


def test_a_wait_is_not_delayed_by_what_holds_the_feed_back(
    waiting_world: tuple[World, float],
) -> None:
    world, _ = waiting_world
    alice = world.user("alice")
    job_id = running_job(world, alice)
    number = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body["id"]
    with world.database.connect(autocommit=False) as old, ThreadPoolExecutor(1) as pool:
        old.execute("select pg_catalog.pg_current_xact_id()")
        wait = pool.submit(alice.get, f"/v1/resizes/{number}/wait")
        eventually(lambda: listeners(world.database), "a listener")
        alice.post(f"/v1/resizes/{number}/cancel")
        assert wait.result(5).body["state"] == "cancelled"


@pytest.mark.parametrize("timeout_s", ["60.001", "61", "-1", "x", "nan", "inf", "1e1", ""])
def test_more_than_a_minute_and_nonsense_are_invalid(
    alice: Client, job_id: int, timeout_s: str
) -> None:
    made = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body
    reply = alice.get(f"/v1/resizes/{made['id']}/wait?timeout_s={timeout_s}")
    assert (reply.status, reply.code) == (422, "invalid")


def test_foreign_and_unknown_requests_are_not_found(
    alice: Client, bob: Client, job_id: int
) -> None:
    made = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body
    for client, number in ((bob, made["id"]), (alice, 999_999), (alice, "x")):
        reply, took_s = timed(client, f"/v1/resizes/{number}/wait")
        assert (reply.status, reply.code) == (404, "not_found")
        assert took_s < 1


def test_a_server_that_stops_answers_who_waits(database: Database, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with running_world(database, tmp_path) as world:
            alice = world.user("alice")
            job_id = running_job(world, alice)
            number = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body["id"]
            wait = pool.submit(alice.get, f"/v1/resizes/{number}/wait")
            eventually(lambda: listeners(world.database), "a listener")
            stopping_s = time.monotonic()
        assert time.monotonic() - stopping_s < 1.5
        assert (wait.result(1).status, wait.result(1).body["state"]) == (200, "pending")
