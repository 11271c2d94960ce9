"""What a body may not be: refused before anything is judged, with the place that is wrong."""

import json
import re
import socket

import pytest

from tests.api.world import Client, World
from tests.system.processes import eventually

BASE = {"command": ["true"]}

INVALID_JOBS = [
    ({"command": []}, "$.command"),
    ({"command": "true"}, "$.command"),
    ({"command": [1]}, "$.command[0]"),
    ({"command": [""]}, "$.command[0]"),
    ({**BASE, "head_command": ["", "x"]}, "$.head_command[0]"),
    ({"command": ["a\0b"]}, "$.command[0]"),
    ({"command": ["x"] * 4097}, "$.command"),
    ({"name": "x"}, "$"),
    ({**BASE, "name": ""}, "$.name"),
    ({**BASE, "name": "a\0"}, "$.name"),
    ({**BASE, "head_command": []}, "$.head_command"),
    ({**BASE, "tasks": True}, "$.tasks"),
    ({**BASE, "tasks": "3"}, "$.tasks"),
    ({**BASE, "tasks": 1.5}, "$.tasks"),
    ({**BASE, "tasks": 0}, "$.tasks"),
    ({**BASE, "tasks": -1}, "$.tasks"),
    ({**BASE, "tasks": 2**31}, "$.tasks"),
    ({**BASE, "tasks": 10**40}, "$.tasks"),
    ({**BASE, "tasks": {"min": 2, "max": 1}}, "$.tasks"),
    ({**BASE, "tasks": {"min": 1}}, "$.tasks"),
    ({**BASE, "tasks": 2, "min_tasks": 3}, "$.min_tasks"),
    ({**BASE, "tasks": {"min": 1, "max": 3}, "min_tasks": 2}, "$.min_tasks"),
    ({**BASE, "tasks": 2, "max_tasks": 1}, "$.max_tasks"),
    ({**BASE, "cpus": 0}, "$.cpus"),
    ({**BASE, "cpus": -1}, "$.cpus"),
    ({**BASE, "grace_s": -1}, "$.grace_s"),
    ({**BASE, "start_s": 0}, "$.start_s"),
    ({**BASE, "span": "some"}, "$.span"),
    ({**BASE, "span": {}}, "$.span"),
    ({**BASE, "span": {"per_host": 1, "hosts": 1}}, "$.span"),
    ({**BASE, "span": {"hosts": 2}}, "$.span.hosts"),
    ({**BASE, "env": {"A=B": "c"}}, "$.env"),
    ({**BASE, "env": {"": "c"}}, "$.env"),
    ({**BASE, "env": {"A\n": "c"}}, "$.env"),
    ({**BASE, "env": {"A": "\0"}}, "$.env[...]"),
    ({**BASE, "env": {"A": 1}}, "$.env[...]"),
    ({**BASE, "cwd": "relative"}, "$.cwd"),
    ({**BASE, "stdout": "%x"}, "$.stdout"),
    ({**BASE, "hosts": []}, "$.hosts"),
    ({**BASE, "hosts": ["h1\n"]}, "$.hosts[0]"),
    ({**BASE, "hosts": ["h1", "h1"]}, "$.hosts"),
    ({**BASE, "hosts": ["h1"], "exclude_hosts": ["h1"]}, "$.exclude_hosts"),
    ({**BASE, "on_host_loss": "cry"}, "$.on_host_loss"),
    ([], "$"),
    (None, "$"),
    ("text", "$"),
]

UNKNOWN_JOBS = [
    ({**BASE, "on_resize": ["x"]}, "on_resize"),
    ({**BASE, "autoresize": False}, "autoresize"),
    ({**BASE, "hook_timeout_s": 5}, "hook_timeout_s"),
    ({**BASE, "Command": ["x"]}, "Command"),
    ({**BASE, "tasks": {"min": 1, "max": 2, "mid": 1}}, "mid"),
    ({**BASE, "span": {"per_rack": 1}}, "per_rack"),
]

INVALID_RESIZES = [
    ({}, "$"),
    ({"grow": 1, "shrink": {"count": 1}}, "$"),
    ({"grow": 1, "to": 2}, "$"),
    ({"to": -1}, "$.to"),
    ({"to": True}, "$.to"),
    ({"grow": 0}, "$.grow"),
    ({"grow": -3}, "$.grow"),
    ({"grow": True}, "$.grow"),
    ({"grow": {"min": 3, "max": 1}}, "$.grow"),
    ({"grow": {"min": 0, "max": 1}}, "$.grow.min"),
    ({"grow": 1, "deadline_s": 0}, "$.deadline_s"),
    ({"grow": 1, "deadline_s": -1}, "$.deadline_s"),
    ({"grow": 1, "hosts": []}, "$.hosts"),
    ({"shrink": {}}, "$.shrink"),
    ({"shrink": 1}, "$.shrink"),
    ({"shrink": {"count": 0}}, "$.shrink.count"),
    ({"shrink": {"count": -1}}, "$.shrink.count"),
    ({"shrink": {"tasks": []}}, "$.shrink.tasks"),
    ({"shrink": {"tasks": [-1]}}, "$.shrink.tasks[0]"),
    ({"shrink": {"tasks": [1, 1]}}, "$.shrink.tasks"),
    ({"shrink": {"count": 1, "tasks": [1]}}, "$.shrink"),
    ({"shrink": {"count": 1}, "hosts": ["h1"]}, "$.hosts"),
]

UNKNOWN_RESIZES = [
    ({"spec": "all"}, "spec"),
    ({"grow": 1, "remainder": "keep"}, "remainder"),
    ({"grow": 1, "replace": True}, "replace"),
    ({"grow": 1, "hook": False}, "hook"),
    ({"grow": 1, "dry_run": True}, "dry_run"),
    ({"shrink": {"keep_hosts": ["h1"]}}, "keep_hosts"),
    ({"shrink": {"spec": "h1"}}, "spec"),
]


def test_a_body_that_breaks_the_vocabulary_is_refused_with_its_path(reader: Client) -> None:
    # One test for all, because a database each would take longer than they all do.
    for body, path in INVALID_JOBS:
        reply = reader.post("/v1/jobs", json.dumps(body).encode())
        assert (reply.status, reply.code) == (422, "invalid"), (body, reply.body)
        assert reply.body["path"] == path, (body, reply.body)
    for body, path in INVALID_RESIZES:
        reply = reader.post("/v1/jobs/1/resizes", body)
        assert (reply.status, reply.code) == (422, "invalid"), (body, reply.body)
        assert reply.body["path"] == path, (body, reply.body)


def test_an_unknown_member_is_named(reader: Client) -> None:
    for path, cases in (("/v1/jobs", UNKNOWN_JOBS), ("/v1/jobs/1/resizes", UNKNOWN_RESIZES)):
        for body, member in cases:
            reply = reader.post(path, body)
            assert (reply.status, reply.code) == (422, "unknown_member"), (body, reply.body)
            assert reply.body["member"] == member
    assert reader.post("/v1/jobs/1/kill", {"now": True}).code == "unknown_member"
    assert reader.post("/v1/resizes/1/cancel", {"tasks": 1}).code == "unknown_member"
    assert reader.post("/v1/jobs/1/resizes?dry_run=true", {"grow": 1}).code == "unknown_member"


@pytest.mark.parametrize(
    "text", [b"nonsense", b"{", b'{"command": ["x"]} x', b"\xff\xfe", b"[" * 100_000, b"{'a': 1}"]
)
def test_what_is_not_json_is_malformed(reader: Client, text: bytes) -> None:
    reply = reader.post("/v1/jobs", text)
    assert reply.status in {400, 422}
    assert reply.code == ("invalid" if text.startswith(b"[[") else "malformed")


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"\\ud800"', "1e999"])
def test_what_only_programs_write_into_json_is_invalid(reader: Client, value: str) -> None:
    text = b'{"command": ["x"], "grace_s": %s}' % value.encode()
    reply = reader.post("/v1/jobs", text)
    assert (reply.status, reply.code) == (422, "invalid")


@pytest.mark.parametrize(
    ("text", "member"),
    [
        (b'{"command": ["x"], "tasks": 2, "tasks": 3}', "tasks"),
        (b'{"command": ["x"], "tasks": 2, "ta\\u0073ks": 2}', "tasks"),
        (b'{"command": ["x"], "env": {"A": "1", "A": "2"}}', "A"),
        (b'{"command": ["x"], "tasks": {"min": 1, "max": 2, "min": 2}}', "min"),
    ],
)
def test_a_member_given_twice_is_refused(reader: Client, text: bytes, member: str) -> None:
    reply = reader.post("/v1/jobs", text)
    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.body["member"] == member


def test_a_name_in_two_objects_is_not_given_twice(alice: Client) -> None:
    body = b'{"command": ["x", "\\"tasks\\":", "tasks"], "env": {"command": "y", "tasks": ""}}'
    assert alice.post("/v1/jobs", body).status == 201


def counted(client: Client, line: str) -> float:
    """A figure of the metrics, which all worlds of this process share."""
    found = re.search(rf"^{re.escape(line)} (.*)$", client.get("/metrics").body.decode(), re.M)
    return float(found[1]) if found else 0


def test_a_client_that_hangs_up_in_its_body_is_no_fault(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    host, port = world.url.removeprefix("http://").split(":")
    ann = world.user("ann")
    faults = 'xce_api_refusals_total{code="internal"}'
    departures = 'xce_api_requests_total{method="POST",route="/v1/jobs",status="400"}'
    before = counted(ann, faults), counted(ann, departures)
    for expects in ("", "Expect: 100-continue\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as conn:
            conn.sendall(
                f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ann.token}\r\n"
                f"Content-Length: 100\r\n{expects}\r\n{{".encode()
            )
    eventually(lambda: counted(ann, departures) == before[1] + 2, "both have gone")
    assert counted(ann, faults) == before[0]
    assert "fault" not in capsys.readouterr().out


def test_a_body_above_one_mebibyte_is_too_large(reader: Client) -> None:
    padding = "x" * (1024 * 1024)
    reply = reader.post("/v1/jobs", {"command": ["true", padding]})
    assert (reply.status, reply.code) == (413, "too_large")


def test_a_problem_is_rfc_9457(reader: Client) -> None:
    reply = reader.post("/v1/jobs", b"x")
    assert reply.headers["Content-Type"].startswith("application/problem+json")
    assert reply.body["status"] == 400
    assert {"type", "title", "status", "detail", "code"} <= reply.body.keys()


@pytest.mark.parametrize("mebibytes", [2, 12])
def test_a_refusal_is_heard_by_a_client_that_sends_on_and_then_hangs_up(
    world: World, mebibytes: int
) -> None:
    host, port = world.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as conn:
        size = mebibytes * 1024 * 1024
        conn.sendall(
            f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
        )
        for _ in range(mebibytes):
            conn.sendall(b"x" * 1024 * 1024)
        assert conn.makefile("rb").readline().startswith(b"HTTP/1.1 4")
