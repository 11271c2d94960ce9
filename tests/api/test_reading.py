"""What lists and reports tell."""

from datetime import datetime
from decimal import Decimal

from app.wire.encoding import decode
from app.wire.reports import Usage
from tests.api.world import Client, World


def test_a_job_is_told_in_full_and_its_environment_to_its_owner_only(
    alice: Client, operator: Client
) -> None:
    body = {
        "command": ["a", "b"],
        "env": {"SECRET": "x"},
        "name": "n",
        "tasks": {"min": 1, "max": 2},
    }
    made = alice.post("/v1/jobs", body)
    path = made.headers["Location"]
    job = alice.get(path).body
    assert (job["command"], job["env"], job["owner"]) == (["a", "b"], {"SECRET": "x"}, "alice")
    assert (job["submitted_tasks"], job["min_tasks"], job["max_tasks"]) == (2, 1, 2)
    assert (job["state"], job["tasks"], job["hosts"], job["exit_code"]) == ("pending", 0, [], None)
    assert "env" not in operator.get(path).body
    assert "env" not in alice.get("/v1/jobs").body["items"][0]
    assert made.headers["ETag"] == '"0"'


def test_a_head_command_makes_the_job_end_with_its_head(alice: Client) -> None:
    body = {"command": ["a"], "head_command": ["b"], "constraints": {"rack": "r1"}}
    job = alice.post("/v1/jobs", body).body
    assert (job["ends_when"], job["constraints"]) == ("head", {"rack": ["r1"]})


def test_times_are_rfc_3339_in_utc(alice: Client, job_id: int) -> None:
    job = alice.get(f"/v1/jobs/{job_id}").body
    for name in ("submitted_at", "started_at"):
        assert job[name].endswith("Z")
        assert datetime.fromisoformat(job[name]).tzinfo is not None


def test_lists_page_through_everything_once(alice: Client) -> None:
    made = [alice.post("/v1/jobs", {"command": ["true"]}).body["id"] for _ in range(5)]
    seen, cursor = [], ""
    while cursor is not None:
        page = alice.get(f"/v1/jobs?limit=2{cursor}").body
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"] and f"&cursor={page['next']}"
    assert seen == made


def test_jobs_are_filtered(world: World, alice: Client, bob: Client, operator: Client) -> None:
    alice.post("/v1/jobs", {"command": ["true"], "name": "a"})
    gone = bob.post("/v1/jobs", {"command": ["true"], "name": "b"}).body["id"]
    bob.post(f"/v1/jobs/{gone}/kill")

    def ids(query: str) -> list[int]:
        return [job["id"] for job in operator.get(f"/v1/jobs?{query}").body["items"]]

    assert ids("state=exited") == [gone]
    assert ids("state=pending,exited") == [1, gone]
    assert ids("state=pending&state=exited") == [1, gone]
    assert ids("name=b") == [gone]
    assert ids("owner=alice") == [1]
    assert ids("owner=nobody") == []


def test_tasks_are_listed_by_index_and_ended_ones_on_demand(
    world: World, alice: Client, job_id: int
) -> None:
    alice.post(f"/v1/jobs/{job_id}/resizes", {"shrink": {"tasks": [1]}})
    world.place()
    world.converge(job_id)
    path = f"/v1/jobs/{job_id}/tasks"
    assert [task["index"] for task in alice.get(path).body["items"]] == [0, 2]
    every = alice.get(f"{path}?all=true").body["items"]
    assert [(task["index"], task["state"], task["how"]) for task in every] == [
        (0, "running", None),
        (1, "ended", "released"),
        (2, "running", None),
    ]
    first = alice.get(f"{path}?all=true&limit=1").body
    rest = alice.get(f"{path}?all=true&limit=5&cursor={first['next']}").body
    assert [task["index"] for task in first["items"] + rest["items"]] == [0, 1, 2]


def test_a_request_says_who_has_to_move_next(world: World, alice: Client, job_id: int) -> None:
    made = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1})
    assert made.headers["Location"] == f"/v1/resizes/{made.body['id']}"
    told = made.body["next"]
    assert (told["waits_on"], "cancel" in told["may"]) == ("controller", True)
    world.place()
    committed = alice.get(made.headers["Location"]).body
    assert committed["next"]["waits_on"] == "worker"
    assert committed["hosts"] == ["h2"]
    assert committed["task_indices"] == [3]
    world.converge(job_id)
    done = alice.get(made.headers["Location"]).body
    assert done["next"] == {
        "may": [],
        "waits_on": "nobody",
        "why": "enough of its tasks came up",
    }
    assert done["tasks_granted"] == 1


def test_resizes_lists_grows_and_shrinks_and_starts_on_demand(alice: Client, job_id: int) -> None:
    alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1})
    path = f"/v1/jobs/{job_id}/resizes"
    assert [r["kind"] for r in alice.get(path).body["items"]] == ["grow"]
    assert [r["kind"] for r in alice.get(f"{path}?all=true").body["items"]] == ["start", "grow"]


def test_a_cancelled_request_says_so(alice: Client, job_id: int) -> None:
    made = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body
    reply = alice.post(f"/v1/resizes/{made['id']}/cancel")
    assert (reply.status, reply.body["state"]) == (200, "cancelled")
    assert reply.body["reason"]
    assert reply.body["finished_at"]


def test_history_tells_each_move_once_page_by_page(
    world: World, alice: Client, job_id: int
) -> None:
    request = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body["id"]
    world.start(job_id)
    path = f"/v1/jobs/{job_id}/history"
    whole = alice.get(f"{path}?limit=1000").body["items"]
    seen, cursor = [], ""
    while cursor is not None:
        page = alice.get(f"{path}?limit=3{cursor}").body
        seen += page["items"]
        cursor = page["next"] and f"&cursor={page['next']}"
    assert seen == whole
    assert [item["at"] for item in whole] == sorted(item["at"] for item in whole)
    for item in whole:
        assert len({"request_id", "task", "job"} & item.keys()) == 1
    own = alice.get(f"/v1/resizes/{request}/history").body["items"]
    assert [item["event"] for item in own] == ["ask", "place", "commit", "started"]
    assert own == [item for item in whole if item.get("request_id") == request]
    assert own[0]["since_previous_s"] is None
    assert own[1]["since_previous_s"] > 0


def test_a_made_up_cursor_is_invalid(alice: Client, job_id: int) -> None:
    for cursor in ("x", "!!!", "WyJhIl0", "%C2%BD", "OTk5OTk5OTk5OTkgMQ"):
        for kind in ("history", "tasks"):
            reply = alice.get(f"/v1/jobs/{job_id}/{kind}?cursor={cursor}")
            assert (reply.status, reply.code) == (422, "invalid"), (kind, cursor)


def test_usage_is_the_sum_of_ranges_to_the_microsecond(
    world: World, alice: Client, job_id: int
) -> None:
    alice.post(f"/v1/jobs/{job_id}/kill")
    world.converge(job_id)
    with world.database.connect() as conn:
        row = conn.execute(
            "select sum((extract(epoch from upper(during) - lower(during)) * 1000000)::bigint),"
            " count(*) from xce.allocation where job_id = %s",
            (job_id,),
        ).fetchone()
    assert row is not None
    told = alice.get(f"/v1/jobs/{job_id}/usage").body
    exact = decode(str(told).replace("'", '"').replace("None", "null").encode(), Usage)
    assert row[1] == 3
    assert exact.task_seconds == Decimal(row[0]) / 1_000_000
    assert exact.cpu_seconds == exact.task_seconds
    assert exact.mem_mib_seconds == 0
    again = alice.get(f"/v1/jobs/{job_id}/usage").body
    assert again["task_seconds"] == told["task_seconds"]


def test_usage_of_open_ranges_counts_up_to_now(alice: Client, job_id: int) -> None:
    first = alice.get(f"/v1/jobs/{job_id}/usage").body
    second = alice.get(f"/v1/jobs/{job_id}/usage").body
    assert 0 < first["task_seconds"] < second["task_seconds"]


def test_allocation_now_and_as_of(world: World, alice: Client, job_id: int) -> None:
    path = f"/v1/jobs/{job_id}/allocation"
    before = alice.get(path).body
    assert (before["generation"], before["hosts"]) == (1, ["h1", "h2"])
    alice.post(f"/v1/jobs/{job_id}/resizes", {"shrink": {"hosts": ["h2"]}})
    world.place()
    world.converge(job_id)
    now = alice.get(path).body
    assert ([task["index"] for task in now["tasks"]], now["hosts"]) == ([0, 1], ["h1"])
    then = alice.get(f"{path}?as_of={before['as_of']}").body
    assert [task["index"] for task in then["tasks"]] == [0, 1, 2]
    assert then["generation"] == 1
    assert alice.get(f"{path}?as_of=2001-01-01T00:00:00Z").body["tasks"] == []
    for nonsense in ("yesterday", "2026-01-01T00:00:00", "0001-01-01T00:00:00%2B14:00"):
        assert alice.get(f"{path}?as_of={nonsense}").code == "invalid"


def test_a_drained_host_empties_and_comes_back(world: World, operator: Client) -> None:
    world.hosts("h1", "h2")
    host = operator.post("/v1/hosts/h1/drain")
    assert (host.status, host.body["drain_wanted"]) == (202, True)
    assert host.body["state"] == "down"
    back = operator.post("/v1/hosts/h1/resume")
    assert (back.body["state"], back.body["drain_wanted"]) == ("joining", False)
    world.workers["h1"].fetch()
    states = {host["name"]: host["state"] for host in operator.get("/v1/hosts").body["items"]}
    assert states == {"h1": "up", "h2": "up"}
    assert [h["name"] for h in operator.get("/v1/hosts?state=up&limit=1").body["items"]] == ["h1"]
    assert operator.get("/v1/hosts/h2").body["cpus"] == 4


def test_why_a_task_ended_is_told_with_it(world: World, alice: Client, job_id: int) -> None:
    world.workers["h1"].gone(job_id, 0, exit_code=None, signal=9, reason="out_of_memory")
    ended = alice.get(f"/v1/jobs/{job_id}/tasks?all=true").body["items"][0]
    assert (ended["state"], ended["reason"], ended["signal"]) == ("ended", "out_of_memory", 9)
