"""Every refusal that the database judges, as its caller sees it."""

from typing import Any

import pytest

from tests.api.world import Client, World


def refused(reply: Any) -> tuple[int, str]:
    assert reply.headers["Content-Type"].startswith("application/problem+json")
    return reply.status, reply.code


@pytest.mark.parametrize("job", ["999", "0", "-1", "abc", "1e3", "01", "9" * 30, "%00", "½"])
def test_unknown_and_malformed_ids_are_not_found(reader: Client, job: str) -> None:
    from urllib.parse import quote

    name = job if job.startswith("%") else quote(job)
    not_found = (404, "not_found")
    for path in (f"/v1/jobs/{name}", f"/v1/jobs/{name}/tasks", f"/v1/jobs/{name}/resizes"):
        assert refused(reader.get(path)) == not_found
    for kind in ("history", "usage", "allocation"):
        assert refused(reader.get(f"/v1/jobs/{name}/{kind}")) == not_found
    assert refused(reader.get(f"/v1/resizes/{name}")) == not_found
    assert refused(reader.get(f"/v1/resizes/{name}/history")) == not_found
    assert refused(reader.post(f"/v1/jobs/{name}/resizes", {"grow": 1})) == not_found
    assert refused(reader.post(f"/v1/jobs/{name}/kill")) == not_found
    assert refused(reader.post(f"/v1/resizes/{name}/cancel")) == not_found


def test_a_foreign_job_does_not_exist(
    world: World, alice: Client, bob: Client, operator: Client, job_id: int
) -> None:
    request = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body["id"]
    not_found = (404, "not_found")
    for path in (f"/v1/jobs/{job_id}", f"/v1/resizes/{request}", f"/v1/resizes/{request}/history"):
        assert refused(bob.get(path)) == not_found
        assert operator.get(path).status == 200
    for kind in ("tasks", "resizes", "history", "usage", "allocation"):
        assert refused(bob.get(f"/v1/jobs/{job_id}/{kind}")) == not_found
    assert refused(bob.post(f"/v1/jobs/{job_id}/kill")) == not_found
    assert refused(bob.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1})) == not_found
    assert refused(bob.post(f"/v1/resizes/{request}/cancel")) == not_found
    assert bob.get("/v1/jobs").body["items"] == []


def test_a_serial_job_is_not_resizable(world: World, alice: Client) -> None:
    world.hosts("h1")
    job = alice.post("/v1/jobs", {"command": ["true"]}).body["id"]
    world.start(job)
    assert refused(alice.post(f"/v1/jobs/{job}/resizes", {"grow": 1})) == (409, "not_resizable")


def test_a_pending_job_does_not_run(alice: Client) -> None:
    job = alice.post("/v1/jobs", {"command": ["true"], "max_tasks": 2}).body["id"]
    reply = alice.post(f"/v1/jobs/{job}/resizes", {"grow": 1})
    assert refused(reply) == (409, "job_not_running")


def test_above_max_tells_what_could_be_granted(alice: Client, job_id: int) -> None:
    reply = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 2})
    assert refused(reply) == (409, "above_max")
    assert reply.body["max_tasks"] == 4
    assert reply.body["grantable"] == 1


def test_below_min_tells_what_could_be_released(alice: Client, job_id: int) -> None:
    reply = alice.post(f"/v1/jobs/{job_id}/resizes", {"shrink": {"count": 3}})
    assert refused(reply) == (409, "below_min")
    assert reply.body["releasable"] == 2


def test_a_shrink_names_tasks_that_are_there(alice: Client, job_id: int) -> None:
    def shrink(**what: Any) -> Any:
        return alice.post(f"/v1/jobs/{job_id}/resizes", {"shrink": what})

    assert refused(shrink(tasks=[7])) == (422, "unknown_task")
    assert refused(shrink(tasks=[0])) == (409, "head_task")
    assert refused(shrink(hosts=["h1"])) == (409, "head_task")
    assert refused(shrink(hosts=["h9"])) == (422, "host_not_in_allocation")
    assert shrink(tasks=[2]).status == 202
    assert refused(shrink(tasks=[2])) == (409, "task_leaving")
    assert refused(shrink(hosts=["h2"])) == (409, "nothing_to_release")


def test_a_finished_job_takes_no_more_requests(alice: Client, job_id: int, world: World) -> None:
    assert alice.post(f"/v1/jobs/{job_id}/kill").status == 202
    assert alice.post(f"/v1/jobs/{job_id}/kill").status == 202
    assert refused(alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1})) == (409, "job_ended")
    world.converge(job_id)
    job = alice.get(f"/v1/jobs/{job_id}").body
    assert (job["state"], job["tasks"], job["hosts"]) == ("exited", 0, [])
    assert refused(alice.post(f"/v1/jobs/{job_id}/kill")) == (409, "job_ended")
    assert refused(alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1})) == (409, "job_ended")


def test_a_stale_generation_changes_nothing(alice: Client, job_id: int) -> None:
    generation = alice.get(f"/v1/jobs/{job_id}").headers["ETag"]
    path = f"/v1/jobs/{job_id}/resizes"
    for stale in ('"99"', "0", '"nonsense"', 'W/"7x"'):
        reply = alice.post(path, {"grow": 1}, If_Match=stale)
        assert refused(reply) == (412, "stale_generation")
    assert refused(alice.post(f"/v1/jobs/{job_id}/kill", If_Match='"0"')) == (
        412,
        "stale_generation",
    )
    assert alice.get(path).body["items"] == []
    assert alice.post(path, {"grow": 1}, If_Match=generation).status == 202


def test_a_request_that_runs_is_too_late_to_cancel(
    world: World, alice: Client, job_id: int
) -> None:
    request = alice.post(f"/v1/jobs/{job_id}/resizes", {"grow": 1}).body["id"]
    world.start(job_id)
    reply = alice.post(f"/v1/resizes/{request}/cancel")
    assert refused(reply) == (409, "too_late")
    assert reply.body["state"] == "running"


def test_an_unknown_project_queue_or_host_is_refused(alice: Client) -> None:
    def submit(**more: Any) -> Any:
        return refused(alice.post("/v1/jobs", {"command": ["true"], **more}))

    assert submit(project="secret") == (403, "project_not_allowed")
    assert submit(queue="none")[0] == 422
    assert submit(hosts=["h77"])[0] == 422


def test_unknown_routes_and_methods_are_problems_too(reader: Client) -> None:
    assert refused(reader.get("/v1/nothing")) == (404, "not_found")
    assert refused(reader.get("/")) == (404, "not_found")
    assert refused(reader.call("DELETE", "/v1/jobs", None, {})) == (405, "method_not_allowed")
    assert refused(reader.call("PUT", "/v1/jobs/1", b"", {})) == (405, "method_not_allowed")


def test_an_unknown_query_is_refused_never_ignored(reader: Client) -> None:
    assert refused(reader.get("/v1/jobs?stat=running")) == (422, "unknown_member")
    for query in ("state=lost", "limit=0", "limit=x", "cursor=x", "limit=1&limit=2", "name=%00"):
        assert refused(reader.get(f"/v1/jobs?{query}")) == (422, "invalid"), query


def test_without_a_valid_token_nothing_is_told(reader: Client) -> None:
    for header in ("", "Bearer", "Bearer nonsense", "Basic eDp5", f"Bearer {'x' * 5000}"):
        reply = reader.get("/v1/jobs", Authorization=header)
        assert refused(reply) == (401, "unauthenticated")
        assert "Bearer" in reply.headers["WWW-Authenticate"]
    assert refused(reader.post("/v1/jobs", b"x", Authorization="")) == (401, "unauthenticated")


def test_a_revoked_or_expired_token_is_dead_at_once(world: World, alice: Client) -> None:
    assert alice.get("/v1/jobs").status == 200
    with world.database.connect() as conn:
        conn.execute("update xce.token set revoked_at = clock_timestamp()")
    assert refused(alice.get("/v1/jobs")) == (401, "unauthenticated")
    with world.database.connect() as conn:
        conn.execute("update xce.token set revoked_at = null, expires_at = clock_timestamp()")
    assert refused(alice.get("/v1/jobs")) == (401, "unauthenticated")


def test_a_dead_token_asks_for_no_resize_although_the_api_knew_it(
    world: World, alice: Client, job_id: int
) -> None:
    path = f"/v1/jobs/{job_id}/resizes"
    asked = alice.post(path, {"grow": 1}, Idempotency_Key="k")
    for death in ("revoked_at = clock_timestamp()", "expires_at = clock_timestamp()"):
        with world.database.connect() as conn:
            conn.execute(f"update xce.token set {death}".encode())
        assert refused(alice.post(path, {"grow": 1})) == (401, "unauthenticated")
        replay = alice.post(path, {"grow": 1}, Idempotency_Key="k")
        assert refused(replay) == (401, "unauthenticated")
        cancel = alice.post(f"/v1/resizes/{asked.body['id']}/cancel")
        assert refused(cancel) == (401, "unauthenticated")
        with world.database.connect() as conn:
            conn.execute("update xce.token set revoked_at = null, expires_at = null")
        assert len(alice.get(path).body["items"]) == 1


def test_a_demoted_operator_cancels_nothing_although_the_api_knew_him(world: World) -> None:
    client = Client(world.url, world.token("root", "operator"))
    assert refused(client.post("/v1/resizes/77/cancel")) == (404, "not_found")
    with world.database.connect() as conn:
        conn.execute("update xce.user_account set is_operator = false")
    assert refused(client.post("/v1/resizes/77/cancel")) == (401, "unauthenticated")


def test_a_jobs_token_is_not_an_owners(world: World) -> None:
    client = Client(world.url, world.token("carol", "job"))
    assert refused(client.get("/v1/jobs")) == (403, "not_allowed")
