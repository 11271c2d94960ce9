"""`xcecli events` and the client's stream, which comes back by itself."""

import http.server
import json
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from app.client.client import Client
from app.client.errors import Refused, Unavailable
from app.client.link import Link
from tests.api.streams import settled
from tests.api.world import World
from tests.cli.conftest import Types
from tests.cli.test_commands import submitted
from tests.system.processes import eventually


def test_events_are_told_a_line_each(world: World, xcecli: Types) -> None:
    world.hosts("h1")
    job, other = submitted(xcecli), submitted(xcecli)
    world.start(job)
    settled(world.database)
    lines = xcecli("events").out.splitlines()
    assert len(lines) == world.count("history where job_id is not null")
    first = lines[0].split("  ")
    assert (first[2:], len(first[0].split("-"))) == (
        [f"job {job}", "none > pending", "submit by owner"],
        3,
    )
    after = xcecli("events", "--after", lines[-2].split()[0], "-o", "wide").out.splitlines()
    assert [line.split()[0] for line in after] == [lines[-1].split()[0]]
    told = [
        json.loads(line) for line in xcecli("events", "--job", other, "-o", "json").out.splitlines()
    ]
    assert {event["job_id"] for event in told} == {other}
    assert xcecli("events", "--after", "now").out == ""
    assert "host h1" in xcecli("events", who="root").out
    refused = xcecli("events", "--after", "nonsense")
    assert (refused.code, "invalid" in refused.err) == (4, True)
    assert xcecli("events", "--job", 999, "--follow").code == 3


def test_follow_prints_what_happens_as_it_happens(world: World, xcecli: Types) -> None:
    submitted(xcecli)
    words = ["-m", "app.cli.main", "events", "--follow", "--after", "now", "-o", "json"]
    follower = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None

    def is_told() -> bool:
        # Until it has begun, "now" is later than each of these.
        world.user("alice").post("/v1/jobs", {"command": ["true"]})
        return bool(select.select([follower.stdout], [], [], 0.1)[0])

    try:
        eventually(is_told, "an event")
        told = [json.loads(follower.stdout.readline())["event"] for _ in range(2)]
        assert told == ["submit", "ask"]
        follower.send_signal(signal.SIGINT)
        assert follower.wait(10) == 130
    finally:
        follower.kill()
        follower.stdout.close()
        follower.wait()


class Breaking(http.server.BaseHTTPRequestHandler):
    """Sends a stream in pieces: one answer each, broken off where it ends."""

    plan: list[bytes]
    asked: list[str | None]
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self.asked.append(self.headers["Last-Event-ID"])
        if not self.plan:
            self.send_error(401)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.plan.pop(0))

    def log_message(self, format: str, *args: object) -> None:
        pass


def event(number: int) -> bytes:
    told = {
        **{"cursor": f"1-7-{number}", "at": "2026-12-01T08:00:00Z", "kind": "job", "job_id": 1},
        **{"source": "a", "event": "b", "target": "c", "actor": "owner", "reason": None},
        **{"generation": 0, "attempt": 1, "job": 1},
    }
    return b"id: %s\nevent: job\ndata: %s\n\n" % (
        told["cursor"].encode(),
        json.dumps(told).encode(),
    )


@pytest.fixture
def breaking() -> Iterator[tuple[str, type[Breaking]]]:
    handler = type("Handler", (Breaking,), {"plan": [], "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_client_resumes_where_a_stream_broke_off(
    breaking: tuple[str, type[Breaking]],
) -> None:
    url, handler = breaking
    handler.plan[:] = [
        b": heartbeat\n\n" + event(1) + event(2) + event(3)[:-30],
        b": heartbeat\n\n",
        event(3) + event(4),
    ]
    said: list[str] = []
    client = Client(Link(url, "x", on_retry=said.append))
    found: list[str] = []

    def read() -> None:
        for event in client.follow_events("1-1-1"):
            found.append(event.cursor)  # noqa: PERF401 - the last step fails

    with pytest.raises(Refused) as refused:
        read()
    assert found == ["1-7-1", "1-7-2", "1-7-3", "1-7-4"]
    assert refused.value.status == 401
    assert handler.asked == [None, "1-7-2", "1-7-2", "1-7-4"]
    assert len(said) == 3


def test_a_stream_that_never_came_about_ends_the_patience() -> None:
    client = Client(Link("http://127.0.0.1:1", "x", patience_s=0.2))
    with pytest.raises(Unavailable):
        list(client.follow_events("1-1-1"))


def test_a_wait_ends_with_the_api_and_not_with_a_poll(
    world: World, xcecli: Types, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is asked for by `…/wait` alone."""
    paths: list[str] = []
    real = Link.get

    def get(self: Link, path: str) -> object:
        paths.append(path)
        return real(self, path)

    monkeypatch.setattr(Link, "get", get)
    world.hosts("h1")
    job = submitted(xcecli, "--tasks", 1, "--max-tasks", 3)
    world.start(job)
    starter = threading.Timer(0.5, world.start, (job,))
    starter.start()
    done = xcecli("resize", "request", 1, job, "--wait", "--timeout", 10, "-o", "json")
    starter.join()
    assert (done.code, json.loads(done.out)["state"]) == (0, "running")
    assert [path.partition("?")[0] for path in paths] == ["/v1/resizes/2/wait"]
    timed_out = xcecli("resize", "request", 1, job, "--wait", "--timeout", 0.2)
    assert timed_out.code == 124
