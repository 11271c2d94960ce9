"""Filters of every list, and the refusal of what is none."""

import pytest

from tests.api.test_refusals import refused
from tests.api.world import Client, World


def test_jobs_by_project_and_queue(world: World, alice: Client) -> None:
    with world.database.connect() as conn:
        conn.execute("insert into xce.project (name, is_open) values ('p2', true)")
        conn.execute("insert into xce.queue (name) values ('q2')")
    for more in ({}, {"project": "p2"}, {"queue": "q2"}, {"project": "p2", "queue": "q2"}):
        assert alice.post("/v1/jobs", {"command": ["true"], **more}).status == 201

    def ids(query: str) -> list[int]:
        return [job["id"] for job in alice.get(f"/v1/jobs?{query}").body["items"]]

    assert ids("project=p2") == [2, 4]
    assert ids("queue=q2") == [3, 4]
    assert ids("queue=default&project=p2") == [2]
    assert ids("project=none") == ids("queue=none") == []


def test_tasks_by_state_and_host(world: World, alice: Client, job_id: int) -> None:
    alice.post(f"/v1/jobs/{job_id}/resizes", {"shrink": {"tasks": [1]}})
    world.place()
    world.converge(job_id)

    def indices(query: str) -> list[int]:
        found = alice.get(f"/v1/jobs/{job_id}/tasks?{query}").body["items"]
        return [task["index"] for task in found]

    assert indices("state=ended") == [1]
    assert indices("state=ended,running") == [0, 1, 2]
    assert indices("state=assigned") == []
    assert indices("host=h2") == [2]
    assert indices("host=h1&all=true") == [0, 1]
    assert indices("host=h1&state=ended") == [1]


def test_requests_by_state_and_kind(world: World, alice: Client, job_id: int) -> None:
    path = f"/v1/jobs/{job_id}/resizes"
    alice.post(path, {"grow": 1})
    alice.post(path, {"shrink": {"tasks": [1]}})

    def kinds(query: str) -> list[str]:
        return [item["kind"] for item in alice.get(f"{path}?{query}").body["items"]]

    assert kinds("kind=shrink") == ["shrink"]
    assert kinds("kind=start") == ["start"]
    assert kinds("kind=start,grow") == ["start", "grow"]
    assert kinds("state=pending,stopping") == ["grow", "shrink"]
    assert kinds("state=running") == []
    assert kinds("state=running&all=true") == ["start"]
    first = alice.get(f"{path}?all=true&limit=2").body
    rest = alice.get(f"{path}?all=true&limit=2&cursor={first['next']}").body
    assert [item["kind"] for item in first["items"] + rest["items"]] == ["start", "grow", "shrink"]


def test_open_requests_of_all_jobs_by_state_and_kind(
    world: World, alice: Client, bob: Client, operator: Client, job_id: int
) -> None:
    path = f"/v1/jobs/{job_id}/resizes"
    gone = alice.post(path, {"grow": 1}).body["id"]
    alice.post(f"/v1/resizes/{gone}/cancel")
    grow = alice.post(path, {"grow": 1}).body
    start = bob.post("/v1/jobs", {"command": ["true"]}).body["id"]

    def told(who: Client, query: str) -> list[tuple[int, str]]:
        items = who.get(f"/v1/resizes?{query}").body["items"]
        return [(item["job_id"], item["kind"]) for item in items]

    assert told(operator, "") == [(job_id, "grow"), (start, "start")]
    assert told(alice, "") == [(job_id, "grow")]
    assert told(bob, "") == told(operator, "kind=start") == [(start, "start")]
    assert told(operator, "state=placed,stopping") == []
    assert alice.get("/v1/resizes").body["items"] == [grow]
    first = operator.get("/v1/resizes?limit=1").body
    assert told(operator, f"limit=1&cursor={first['next']}") == [(start, "start")]
    assert refused(alice.get("/v1/resizes?state=running")) == (422, "invalid")


LISTS = ["resizes", "jobs", "hosts", "tokens", "jobs/1/tasks", "jobs/1/resizes", "jobs/1/history"]


@pytest.mark.parametrize("name", LISTS)
def test_what_is_no_filter_is_refused_never_ignored(reader: Client, name: str) -> None:
    assert refused(reader.get(f"/v1/{name}?colour=red")) == (422, "unknown_member")
    for query in ("limit=0", "limit=1001", "limit=1&limit=2"):
        assert refused(reader.get(f"/v1/{name}?{query}"))[0] in {404, 422}, query


@pytest.mark.parametrize("name", ["jobs", "hosts", "tokens", "resizes"])
def test_a_state_that_does_not_exist_and_a_made_up_cursor_are_invalid(
    reader: Client, name: str
) -> None:
    for query in ("state=asleep", "cursor=x", "cursor=-1", "limit=1001"):
        assert refused(reader.get(f"/v1/{name}?{query}")) == (422, "invalid"), query


def test_a_filter_of_a_jobs_lists_takes_known_words_only(alice: Client, job_id: int) -> None:
    for path, query in (
        ("tasks", "state=pending"),
        ("tasks", "host=%00"),
        ("resizes", "state=up"),
        ("resizes", "kind=jump"),
        ("resizes", "limit=1001"),
        ("history", "limit=1001"),
    ):
        reply = alice.get(f"/v1/jobs/{job_id}/{path}?{query}")
        assert refused(reply) == (422, "invalid"), (path, query)
