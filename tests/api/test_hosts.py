"""Hosts over REST: everybody looks, operators change; a refusal changes nothing."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.db.administration import Administration
from app.db.logins import host_login_name, login_url
from tests.api.test_refusals import refused
from tests.api.world import Client, World

SIZE = {"cpus": 8, "mem_mib": 4096, "gpus": 1, "labels": {"rack": "r1"}}


def silence(world: World, *names: str) -> None:
    """The hosts were not heard of for a minute, and the sweep saw it."""
    with world.database.connect() as conn:
        conn.execute(
            "update xce.heartbeat set last_seen_at = clock_timestamp() - interval '1 minute'"
            " where host_id in (select id from xce.host where name = any (%s))",
            (list(names),),
        )
        row = conn.execute("select epoch from xce.take_lease('test')").fetchone()
        assert row is not None
        conn.execute("select xce.sweep_silence(%s)", row)


def test_owners_look_at_hosts_and_change_none(world: World, alice: Client) -> None:
    world.hosts("h1")
    before = alice.get("/v1/hosts").body
    assert [host["name"] for host in before["items"]] == ["h1"]
    assert alice.get("/v1/hosts/h1").body["cpus"] == 4
    for reply in (
        alice.put("/v1/hosts/h1", SIZE),
        alice.put("/v1/hosts/h2", SIZE),
        alice.delete("/v1/hosts/h1"),
        alice.post("/v1/hosts/h1/drain"),
        alice.post("/v1/hosts/h1/resume"),
        alice.post("/v1/hosts/h1/down", {"confirm_dead": True}),
    ):
        assert refused(reply) == (403, "not_allowed")
    after = alice.get("/v1/hosts").body
    assert [host["state"] for host in after["items"]] == ["up"]


def test_a_host_made_over_rest_gets_its_login_by_xce_host_add(
    world: World, operator: Client, tmp_path: Path
) -> None:
    made = operator.put("/v1/hosts/n1", SIZE)
    assert (made.status, made.body["state"]) == (201, "joining")
    assert "xce host add n1" in made.body["reason"]
    assert {name: made.body[name] for name in SIZE} == SIZE
    with Administration.open(world.database.url) as administration:
        login = administration.add_host("n1", None, passfile=tmp_path / "n1")
    assert login.name == host_login_name(world.database.name, "n1")
    url = login_url(world.database.url, login.name, login.passfile)
    with psycopg.connect(url, autocommit=True) as conn:
        answer: Any = conn.execute("select xce.worker_register('boot', '1', '[]')").fetchone()
        conn.execute("select xce.worker_fetch(%s, true)", (answer[0]["incarnation"],))
    up = operator.get("/v1/hosts/n1").body
    assert (up["state"], up["reason"], up["cpus"]) == ("up", None, 8)


def test_put_replaces_the_whole_size(world: World, operator: Client) -> None:
    world.hosts("h1")
    reply = operator.put("/v1/hosts/h1", SIZE)
    assert (reply.status, reply.body["labels"]) == (200, {"rack": "r1"})
    again = operator.put("/v1/hosts/h1", {"cpus": 2, "mem_mib": 0})
    assert (again.status, again.body["gpus"], again.body["labels"]) == (200, 0, {})


def test_a_size_below_what_is_used_is_refused_with_figures(operator: Client, job_id: int) -> None:
    reply = operator.put("/v1/hosts/h1", {"cpus": 1, "mem_mib": 0})
    assert refused(reply) == (409, "drain_first")
    assert (reply.body["cpus_used"], reply.body["cpus_held"]) == (2, 0)
    assert operator.get("/v1/hosts/h1").body["cpus"] == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid"),
        ({"cpus": 0, "mem_mib": 0}, "invalid"),
        ({"cpus": 1}, "invalid"),
        ({"cpus": 1, "mem_mib": -1}, "invalid"),
        ({"cpus": 1, "mem_mib": 0, "gpus": True}, "invalid"),
        ({"cpus": 1, "mem_mib": 0, "labels": {"": "x"}}, "invalid"),
        ({"cpus": 1, "mem_mib": 0, "labels": {"a": 1}}, "invalid"),
        ({"cpus": 1, "mem_mib": 0, "login": "postgres"}, "unknown_member"),
    ],
)
def test_a_body_that_is_no_size_is_refused(
    still_world: World, body: dict[str, Any], code: str
) -> None:
    root = still_world.user("root", is_operator=True)
    assert refused(root.put("/v1/hosts/h1", body)) == (422, code)
    assert root.get("/v1/hosts").body["items"] == []


@pytest.mark.parametrize("name", ["-h", "h_1", "h%20", "h%00", "x" * 64, "h1%0A"])
def test_a_name_that_no_host_can_have_is_refused(still_world: World, name: str) -> None:
    root = still_world.user("root", is_operator=True)
    assert refused(root.put(f"/v1/hosts/{name}", SIZE)) == (422, "invalid")
    for reply in (
        root.get(f"/v1/hosts/{name}"),
        root.delete(f"/v1/hosts/{name}"),
        root.post(f"/v1/hosts/{name}/drain"),
        root.post(f"/v1/hosts/{name}/down", {"confirm_dead": True}),
    ):
        assert refused(reply) == (404, "not_found")
    assert root.get("/v1/hosts").body["items"] == []


def test_a_lost_host_is_vouched_for_and_removed(
    world: World, alice: Client, operator: Client, job_id: int
) -> None:
    assert refused(operator.delete("/v1/hosts/h2")) == (409, "drain_first")
    up = operator.post("/v1/hosts/h2/down", {"confirm_dead": True})
    assert (refused(up), up.body["state"]) == ((409, "drain_first"), "up")
    silence(world, "h2")
    lost = operator.delete("/v1/hosts/h2")
    assert (refused(lost), lost.body["open_tasks"]) == ((409, "drain_first"), 1)
    assert "confirm_dead" in lost.body["detail"]
    for body in (None, {}, {"confirm_dead": False}):
        assert refused(operator.post("/v1/hosts/h2/down", body)) == (422, "invalid")
    assert alice.get(f"/v1/jobs/{job_id}").body["tasks"] == 3
    down = operator.post("/v1/hosts/h2/down", {"confirm_dead": True}, Idempotency_Key="k")
    assert (down.status, down.body["state"], down.body["cpus_used"]) == (202, "down", 0)
    again = operator.post("/v1/hosts/h2/down", {"confirm_dead": True}, Idempotency_Key="k")
    assert (again.status, again.headers["Idempotent-Replay"]) == (202, "true")
    ended = alice.get(f"/v1/jobs/{job_id}/tasks?all=true").body["items"]
    assert [(task["host"], task["how"]) for task in ended][-1] == ("h2", "lost")
    gone = operator.delete("/v1/hosts/h2", Idempotency_Key="d")
    assert (gone.status, gone.body) == (204, b"")
    assert operator.delete("/v1/hosts/h2", Idempotency_Key="d").status == 204
    assert refused(operator.delete("/v1/hosts/h2")) == (404, "not_found")
    assert [h["name"] for h in operator.get("/v1/hosts?state=removed").body["items"]] == ["h2"]


def test_hosts_are_listed_page_by_page_and_by_state(world: World, operator: Client) -> None:
    world.hosts("h1", "h2", "h3")
    operator.post("/v1/hosts/h2/drain")
    first = operator.get("/v1/hosts?limit=2").body
    rest = operator.get(f"/v1/hosts?limit=2&cursor={first['next']}").body
    assert [h["name"] for h in first["items"] + rest["items"]] == ["h1", "h2", "h3"]
    assert rest["next"] is None
    listed = operator.get("/v1/hosts?state=down").body["items"]
    assert [host["name"] for host in listed] == ["h2"]


def test_a_drain_with_shrink_asks_whoever_may_leave(
    world: World, operator: Client, alice: Client, job_id: int
) -> None:
    body = {"command": ["true"], "tasks": 3, "max_tasks": 4}
    firm = alice.post("/v1/jobs", body | {"min_tasks": 3}).body["id"]
    with world.database.connect() as conn:
        conn.execute("update xce.host set cpus = 3 where name = 'h1'")
    world.start(firm)
    tasks = alice.get(f"/v1/jobs/{firm}/tasks").body["items"]
    assert [task["host"] for task in tasks] == ["h1", "h2", "h2"]
    key = {"Idempotency_Key": "drain-1"}
    drained = operator.post("/v1/hosts/h2/drain", {"shrink": True}, **key)
    assert (drained.status, drained.body["state"]) == (202, "draining")
    asked = alice.get(f"/v1/jobs/{job_id}/resizes").body["items"]
    assert [(one["kind"], one["state"], one["origin"]) for one in asked] == [
        ("shrink", "stopping", "operator")
    ]
    assert asked[0]["task_indices"] == [2]
    assert alice.get(f"/v1/jobs/{firm}/resizes").body["items"] == []
    again = operator.post("/v1/hosts/h2/drain", {"shrink": True}, **key)
    assert again.headers["Idempotent-Replay"] == "true"
    operator.post("/v1/hosts/h1/drain", {"shrink": True})
    assert len(alice.get(f"/v1/jobs/{job_id}/resizes").body["items"]) == 1


def test_a_drain_of_no_such_host_with_shrink_is_404(operator: Client) -> None:
    assert refused(operator.post("/v1/hosts/h9/drain", {"shrink": True})) == (404, "not_found")
