"""Tokens over REST: shown once, dead when revoked or expired, and nobody makes more than it may."""

import hashlib
from typing import Any

import pytest

from tests.api.test_refusals import refused
from tests.api.world import Client, World


def test_a_token_is_shown_once_and_opens_the_door(world: World, alice: Client) -> None:
    made = alice.post("/v1/tokens", {"expires_in_s": 3600})
    assert (made.status, made.headers["Cache-Control"]) == (201, "no-store")
    told = made.body
    assert (told["user"], told["role"], told["state"]) == ("alice", "owner", "valid")
    assert told["expires_at"] > told["created_at"]
    other = Client(world.url, told["token"])
    assert other.post("/v1/jobs", {"command": ["true"]}).body["owner"] == "alice"
    listed = alice.get("/v1/tokens")
    assert [item["id"] for item in listed.body["items"]] == [1, told["id"]]
    text = str(listed.body)
    assert told["token"] not in text
    assert hashlib.sha256(told["token"].encode()).hexdigest() not in text
    assert {"last_used_at", "revoked_at"} <= listed.body["items"][0].keys()
    assert "token" not in listed.body["items"][1]


def test_a_revoked_token_is_dead_at_once_and_revoking_it_again_is_fine(
    world: World, alice: Client
) -> None:
    made = alice.post("/v1/tokens").body
    other = Client(world.url, made["token"])
    assert other.get("/v1/jobs").status == 200
    for _ in range(2):
        gone = alice.delete(f"/v1/tokens/{made['id']}")
        assert (gone.status, gone.body) == (204, b"")
    assert refused(other.get("/v1/jobs")) == (401, "unauthenticated")
    (listed,) = alice.get("/v1/tokens?state=revoked").body["items"]
    assert (listed["id"], listed["state"]) == (made["id"], "revoked")
    assert listed["revoked_at"]


def test_an_expired_token_is_dead(world: World, alice: Client) -> None:
    made = alice.post("/v1/tokens", {"expires_in_s": 3600}).body
    with world.database.connect() as conn:
        conn.execute(
            "update xce.token set expires_at = clock_timestamp() where id = %s", (made["id"],)
        )
    assert refused(Client(world.url, made["token"]).get("/v1/jobs")) == (401, "unauthenticated")
    (listed,) = alice.get("/v1/tokens?state=expired").body["items"]
    assert listed["id"] == made["id"]


def test_an_owner_makes_and_sees_its_own_only(
    world: World, alice: Client, bob: Client, operator: Client
) -> None:
    bobs = bob.post("/v1/tokens").body["id"]
    before = world.count("token")
    for body in ({"user": "bob"}, {"role": "operator"}, {"user": "nobody"}, {"user": "root"}):
        assert refused(alice.post("/v1/tokens", body)) == (403, "not_allowed"), body
    assert world.count("token") == before
    assert alice.post("/v1/tokens", {"user": "alice", "role": "owner"}).status == 201
    assert refused(alice.delete(f"/v1/tokens/{bobs}")) == (404, "not_found")
    assert bob.get("/v1/tokens?user=bob&limit=1000").body["items"][-1]["state"] == "valid"
    assert {item["user"] for item in alice.get("/v1/tokens").body["items"]} == {"alice"}
    assert alice.get("/v1/tokens?user=bob").body["items"] == []
    seen = {item["user"] for item in operator.get("/v1/tokens").body["items"]}
    assert seen == {"alice", "bob", "root"}


def test_an_operator_makes_any_that_makes_sense(
    world: World, alice: Client, operator: Client
) -> None:
    made = operator.post("/v1/tokens", {"user": "alice"}).body
    assert (made["user"], made["role"]) == ("alice", "owner")
    own = operator.post("/v1/tokens", {"role": "operator"}).body
    assert Client(world.url, own["token"]).get("/v1/settings").status == 200
    before = world.count("token")
    for body in ({"user": "nobody"}, {"user": "alice", "role": "operator"}):
        assert refused(operator.post("/v1/tokens", body)) == (422, "invalid"), body
    assert world.count("token") == before
    assert operator.delete(f"/v1/tokens/{made['id']}").status == 204


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"role": "job"}, "invalid"),
        ({"expires_in_s": 0}, "invalid"),
        ({"expires_in_s": 1e18}, "invalid"),
        ({"user": "a\0"}, "invalid"),
        ({"token": "mine"}, "unknown_member"),
    ],
)
def test_a_body_that_asks_for_no_token_is_refused(
    still_world: World, reader: Client, body: Any, code: str
) -> None:
    before = still_world.count("token")
    assert refused(reader.post("/v1/tokens", body)) == (422, code)
    assert still_world.count("token") == before


@pytest.mark.parametrize("token_id", ["0", "x", "999", "9" * 30])
def test_an_id_that_no_token_has_is_not_found(reader: Client, token_id: str) -> None:
    assert refused(reader.delete(f"/v1/tokens/{token_id}")) == (404, "not_found")


def test_a_repeat_does_not_tell_the_token_again(world: World, alice: Client) -> None:
    first = alice.post("/v1/tokens", Idempotency_Key="k")
    again = alice.post("/v1/tokens", Idempotency_Key="k")
    assert (again.status, again.headers["Idempotent-Replay"]) == (201, "true")
    assert again.body == {k: v for k, v in first.body.items() if k != "token"}
    assert world.count("token") == 2


def test_tokens_are_listed_page_by_page(alice: Client) -> None:
    made = [alice.post("/v1/tokens").body["id"] for _ in range(4)]
    seen, cursor = [], ""
    while cursor is not None:
        listed = alice.get(f"/v1/tokens?limit=2{cursor}").body
        seen += [item["id"] for item in listed["items"]]
        cursor = listed["next"] and f"&cursor={listed['next']}"
    assert seen == [1, *made]
    assert alice.get("/v1/tokens?role=operator").body["items"] == []


def test_a_caller_learns_who_it_is(alice: Client, operator: Client) -> None:
    made = alice.post("/v1/tokens", {"expires_in_s": 3600}).body
    own = Client(alice.url, made["token"]).get("/v1/caller").body
    assert (own["id"], own["user"], own["role"]) == (made["id"], "alice", "owner")
    assert own["expires_at"] == made["expires_at"]
    assert "token" not in own
    root = operator.get("/v1/caller").body
    assert (root["user"], root["role"]) == ("root", "operator")
