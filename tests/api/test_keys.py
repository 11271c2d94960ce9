"""Idempotency keys: one effect however often it is asked for (H49)."""

import hashlib
import threading
from typing import Any

import psycopg

from tests.api.world import Client, Reply, World


def test_h49_a_grow_repeated_three_times_is_one_grow(
    world: World, alice: Client, job_id: int
) -> None:
    path = f"/v1/jobs/{job_id}/resizes"
    first = alice.post(path, {"grow": 1}, Idempotency_Key="k1")
    assert (first.status, first.headers["Idempotent-Replay"]) == (202, None)
    world.start(job_id)
    for _ in range(3):
        again = alice.post(path, {"grow": 1}, Idempotency_Key="k1")
        assert (again.status, again.headers["Idempotent-Replay"]) == (202, "true")
        assert again.headers["Location"] == first.headers["Location"]
        assert (again.body["id"], again.body["state"]) == (first.body["id"], "running")
    assert len(alice.get(path).body["items"]) == 1
    assert alice.get(f"/v1/jobs/{job_id}").body["tasks"] == 4


def test_h49_every_post_replays(world: World, alice: Client, operator: Client, job_id: int) -> None:
    request = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body["id"]
    shrink = {"shrink": {"tasks": [2]}}
    calls: list[tuple[Client, str, Any]] = [
        (alice, "/v1/jobs", {"command": ["true"]}),
        (alice, f"/v1/resizes/{request}/cancel", None),
        (alice, f"/v1/jobs/{job_id}/resizes", shrink),
        (operator, "/v1/hosts/h2/drain", None),
        (alice, f"/v1/jobs/{job_id}/kill", None),
    ]
    for client, path, body in calls:
        replies = [client.post(path, body, Idempotency_Key="same") for _ in range(4)]
        assert len({reply.status for reply in replies}) == 1, (path, replies[0].body)
        assert replies[0].status in {200, 201, 202}
        assert len({reply.body["id"] for reply in replies}) == 1
        seen = [reply.headers["Idempotent-Replay"] for reply in replies]
        assert seen == [None, "true", "true", "true"], path
    assert world.count("job") == 2


def test_a_key_sent_with_another_body_is_refused(alice: Client, job_id: int) -> None:
    path = f"/v1/jobs/{job_id}/resizes"
    assert alice.post(path, {"grow": 1}, Idempotency_Key="k").status == 202
    reply = alice.post(path, {"shrink": {"count": 1}}, Idempotency_Key="k")
    assert (reply.status, reply.code) == (422, "idempotency_key_reused")


def test_a_known_key_outranks_if_match_and_every_refusal(
    world: World, alice: Client, job_id: int
) -> None:
    path = f"/v1/jobs/{job_id}/resizes"
    made = alice.post(path, {"grow": 1}, Idempotency_Key="k", If_Match='"1"')
    assert made.status == 202
    world.start(job_id)
    alice.post(f"/v1/jobs/{job_id}/kill")
    again = alice.post(path, {"grow": 1}, Idempotency_Key="k", If_Match='"1"')
    assert (again.status, again.body["id"]) == (202, made.body["id"])


def test_a_refusal_is_not_kept(world: World, alice: Client) -> None:
    body = {"command": ["true"], "hosts": ["h1"]}
    assert alice.post("/v1/jobs", body, Idempotency_Key="k").status == 422
    world.hosts("h1")
    assert alice.post("/v1/jobs", body, Idempotency_Key="k").status == 201


def test_a_key_is_the_callers_own(world: World, alice: Client, bob: Client) -> None:
    body = {"command": ["true"]}
    ids = {who.post("/v1/jobs", body, Idempotency_Key="k").body["id"] for who in (alice, bob)}
    assert len(ids) == 2


def test_a_key_has_to_be_one(alice: Client) -> None:
    for key in ("", "x" * 256):
        reply = alice.post("/v1/jobs", {"command": ["true"]}, Idempotency_Key=key)
        assert (reply.status, reply.code) == (422, "invalid")


def test_repeats_at_the_same_time_wait_for_the_first(world: World, alice: Client) -> None:
    replies: list[Reply] = []

    def submit() -> None:
        replies.append(alice.post("/v1/jobs", {"command": ["true"]}, Idempotency_Key="k"))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reply.status for reply in replies] == [201] * 8
    assert len({reply.body["id"] for reply in replies}) == 1
    assert world.count("job") == 1


def test_the_token_itself_is_nowhere_in_the_database(world: World, alice: Client) -> None:
    alice.post("/v1/jobs", {"command": ["true"]})
    assert alice.token is not None
    with world.database.connect() as conn:
        rows = conn.execute("select sha256 from xce.token").fetchall()
    assert hashlib.sha256(alice.token.encode()).digest() in {row[0] for row in rows}


def test_a_lost_connection_is_unavailable_and_the_key_tells(world: World, alice: Client) -> None:
    """The commit may hold or not: the same key gives the one job in either case."""
    body = {"command": ["true"]}
    assert alice.post("/v1/jobs", body, Idempotency_Key="warm").status == 201
    with psycopg.connect(world.database.url, autocommit=True) as conn:
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name like 'xce api%' and datname = current_database()"
        )
    statuses = [alice.post("/v1/jobs", body, Idempotency_Key="k") for _ in range(4)]
    assert statuses[-1].status == 201, statuses[-1].body
    assert {reply.status for reply in statuses} <= {201, 503}
    for reply in statuses:
        if reply.status == 503:
            assert reply.code == "unavailable"
            assert reply.headers["Retry-After"] == "1"
    assert world.count("job") == 2
