"""Usage reports over REST; their arithmetic is tested in tests/sql/test_usage.py."""

import csv
import io
import itertools
from decimal import Decimal
from typing import Any

import pytest

from tests.api.test_refusals import refused
from tests.api.world import Client, World

MEASURES = [
    *("task_seconds", "cpu_seconds", "mem_mib_seconds", "gpu_seconds", "cpu_used_s"),
    "mem_peak_mib",
]


def test_a_report_tells_each_group_and_what_it_covers(
    world: World, alice: Client, operator: Client, job_id: int
) -> None:
    alice.post(f"/v1/jobs/{job_id}/kill")
    world.converge(job_id)
    report = operator.get("/v1/usage?by=project").body
    (item,) = report["items"]
    assert list(item) == ["project", *MEASURES]
    assert item["project"] == "default"
    assert item["task_seconds"] == alice.get(f"/v1/jobs/{job_id}/usage").body["task_seconds"]
    assert (report["by"], report["tz"], report["from"], report["next"]) == (
        *("project", "UTC", None),
        None,
    )
    assert report["to"] == report["as_of"]
    for by in ("job", "owner", "queue", "host", "day", "hour"):
        items = operator.get(f"/v1/usage?by={by}&tz=Asia/Kolkata").body["items"]
        total = sum(Decimal(str(item["task_seconds"])) for item in items)
        assert total == Decimal(str(report["items"][0]["task_seconds"])), by
    by_host = operator.get("/v1/usage?by=host").body["items"]
    assert [item["host"] for item in by_host] == ["h1", "h2"]
    assert operator.get("/v1/usage?by=job").body["items"][0]["job"] == job_id


def test_open_ranges_count_up_to_now(alice: Client, job_id: int) -> None:
    first, second = (alice.get("/v1/usage?to=2999-01-01").body for _ in range(2))
    assert first["to"] == first["as_of"]
    assert 0 < first["items"][0]["task_seconds"] < second["items"][0]["task_seconds"]


def test_what_a_task_used_stands_beside_its_range(world: World, alice: Client, job_id: int) -> None:
    worker = world.workers["h2"]
    worker.gone(job_id, 2, cpu_used_us=1_500_001, mem_peak_mib=77)
    (item,) = alice.get("/v1/usage").body["items"]
    assert (item["cpu_used_s"], item["mem_peak_mib"]) == (1.500001, 77)


def test_owners_see_their_own(alice: Client, bob: Client, operator: Client, job_id: int) -> None:
    assert [item["owner"] for item in alice.get("/v1/usage?by=owner").body["items"]] == ["alice"]
    assert bob.get("/v1/usage?by=owner").body["items"] == []
    assert bob.get("/v1/usage?by=host").body["items"] == []
    assert [item["owner"] for item in operator.get("/v1/usage?by=owner").body["items"]] == ["alice"]


@pytest.mark.parametrize("how", ["query", "header"])
def test_a_report_is_csv_on_demand(alice: Client, job_id: int, how: str) -> None:
    if how == "query":
        reply = alice.get("/v1/usage?by=job&format=csv")
    else:
        reply = alice.get("/v1/usage?by=job", Accept="text/csv")
    assert reply.headers["Content-Type"] == "text/csv; charset=utf-8"
    heading, row = csv.reader(io.StringIO(reply.body.decode(), newline=""))
    assert heading == ["job", *MEASURES]
    assert (row[0], Decimal(row[1]) > 0, row[-1]) == (str(job_id), True, "")
    assert alice.get("/v1/usage?format=json", Accept="text/csv").body["by"] == "project"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("by=planet", "invalid"),
        ("by=job,owner", "invalid"),
        ("by=job&by=owner", "invalid"),
        ("tz=Mars/Olympus", "invalid"),
        ("tz=FOO%2B3", "invalid"),
        ("tz=%00", "invalid"),
        ("from=yesterday", "invalid"),
        ("from=2026-02-30", "invalid"),
        ("from=2026-01-01T00:00:00", "invalid"),
        ("from=2026-01-02&to=2026-01-02", "invalid"),
        ("from=2026-01-03&to=2026-01-02", "invalid"),
        ("from=2021-01-01&by=hour", "invalid"),
        ("from=1800-01-01&by=day", "invalid"),
        ("format=xml", "invalid"),
        ("limit=1", "unknown_member"),
        ("since=2026-01-01", "unknown_member"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused(reader: Client, query: str, code: str) -> None:
    assert refused(reader.get(f"/v1/usage?{query}")) == (422, code)


def test_a_report_of_what_is_to_come_is_empty(alice: Client, job_id: int) -> None:
    for by in ("project", "day", "hour"):
        reply = alice.get(f"/v1/usage?from=2999-01-01&to=2999-01-02&by={by}")
        assert (reply.status, reply.body["items"]) == (200, [])


def test_an_empty_database_has_an_empty_report(reader: Client) -> None:
    for by in ("project", "day", "hour"):
        body: Any = reader.get(f"/v1/usage?by={by}").body
        assert body["items"] == []


def test_h37_a_resized_jobs_sums_touch_without_gap_or_overlap(world: World, alice: Client) -> None:
    """Size 2, at 100 s 4, at 160 s 1 (its processes gone at 163 s), ended at 200 s."""
    world.hosts("h1")
    job = alice.post("/v1/jobs", {"command": ["true"], "tasks": 4}).body["id"]
    world.start(job)
    alice.post(f"/v1/jobs/{job}/kill")
    world.converge(job)
    # The hour ends 120 s after the job's start.
    spans = {0: (0, 200), 1: (0, 163), 2: (100, 163), 3: (100, 163)}
    with world.database.connect() as conn:
        for index, (since, until) in spans.items():
            conn.execute(
                "update xce.allocation set during = tstzrange(x.at + %s * interval '1 s',"
                " x.at + %s * interval '1 s')"
                " from (select timestamptz '2026-03-01 07:58Z') as x (at)"
                " where job_id = %s and task_index = %s",
                (since, until, job, index),
            )

    def seconds(query: str) -> list[float]:
        items = alice.get(f"/v1/usage?{query}").body["items"]
        return [item["task_seconds"] for item in items]

    assert seconds("to=2026-03-01T08:00:30Z") == [400]
    # What is being stopped is still there: 3 s of three tasks are charged.
    assert seconds("by=job") == [480 + 9]
    assert seconds("by=hour") == [2 * 120 + 2 * 20, 4 * 40 + 9 + 40]
    assert alice.get(f"/v1/jobs/{job}/usage").body["task_seconds"] == 489


def test_h39_use_is_that_of_all_hosts_in_whatever_order_they_report(
    world: World, alice: Client
) -> None:
    hosts = world.hosts("h1", "h2", "h3")
    for n, order in enumerate(itertools.permutations(range(3))):
        job = alice.post("/v1/jobs", {"command": ["true"], "tasks": 3, "cpus": 4}).body["id"]
        world.start(job)
        for index in (*order, order[0]):
            hosts[index].gone(job, index, cpu_used_us=10_000_000, mem_peak_mib=100)
        items = alice.get("/v1/usage?by=job").body["items"]
        assert [(item["cpu_used_s"], item["mem_peak_mib"]) for item in items] == [(30, 100)] * (
            n + 1
        )
    ask = {"command": ["true"], "tasks": 3, "min_tasks": 1, "cpus": 4}
    job = alice.post("/v1/jobs", ask).body["id"]
    world.start(job)
    alice.post(f"/v1/jobs/{job}/resizes", {"shrink": {"hosts": ["h3"]}})
    for index, used_us in ((2, 5_000_000), (0, 10_000_000), (1, 10_000_000)):
        hosts[index].fetch()
        hosts[index].gone(job, index, cpu_used_us=used_us)
    assert alice.get("/v1/usage?by=job").body["items"][-1]["cpu_used_s"] == 25
