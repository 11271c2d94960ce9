"""Output over REST: what the API makes of a worker that answers well, badly or not at all."""

import hashlib
import http.client
import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.api import output_feed, relaying
from app.worker.certificate import ensure_certificate, fingerprint, server_context
from tests.api.world import Client, World

Answer = Callable[[dict[str, Any], ssl.SSLSocket], None]


class PlayedWorker(socketserver.ThreadingTCPServer):
    """A port with a real certificate, behind which the test says what is answered."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        self.context = server_context(certificate)
        self.door = (f"127.0.0.1:{self.server_address[1]}", fingerprint(certificate))
        #: What visitors said, b"" of those who said nothing.
        self.heard: list[bytes] = []
        self.answers: list[Answer] = []
        self.met = threading.Event()
        self.hung_up = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The test looks at what the API made of it."""


class _Visit(socketserver.BaseRequestHandler):
    server: PlayedWorker

    def handle(self) -> None:
        line = b""
        try:
            with self.server.context.wrap_socket(self.request, server_side=True) as visitor:
                line = visitor.makefile("rb").readline()
                self._answer(line, visitor)
        except OSError:
            # It hung up on us, as one that finds another certificate does.
            self._note(line)

    def _answer(self, line: bytes, visitor: ssl.SSLSocket) -> None:
        self._note(line)
        if line:
            answer = self.server.answers.pop(0)
            answer(json.loads(line), visitor)

    def _note(self, line: bytes) -> None:
        if line not in self.server.heard:
            self.server.heard.append(line)
        self.server.met.set()


def telling(body: bytes = b"", **told: Any) -> Answer:
    """Answers one line and some bytes, and hangs up."""

    def answer(_: dict[str, Any], visitor: ssl.SSLSocket) -> None:
        visitor.sendall(json.dumps({"ok": True} | told).encode() + b"\n" + body)

    return answer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two workers'."""
    folders = (tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other"))
    one, other = (ensure_certificate(folder) for folder in folders)
    return one, other


@pytest.fixture
def worker(certificates: tuple[Path, Path]) -> Iterator[PlayedWorker]:
    with PlayedWorker(certificates[0]) as made:
        serving = threading.Thread(target=made.serve_forever, args=(0.01,))
        serving.start()
        yield made
        made.shutdown()
        serving.join()


@pytest.fixture
def path(world: World, alice: Client, worker: PlayedWorker) -> str:
    """The output of a running task of alice's, whose worker the test plays."""
    world.hosts("h1")
    world.workers["h1"].register(door=worker.door)
    world.workers["h1"].fetch()
    made = alice.post("/v1/jobs", {"command": ["true"]})
    world.start(made.body["id"])
    return f"/v1/jobs/{made.body['id']}/tasks/0/output"


def end_task(world: World, path: str) -> None:
    stub = world.workers["h1"]
    stub.fetch()
    stub.gone(int(path.split("/")[3]), 0)


@contextmanager
def followed(client: Client, path: str) -> Iterator[http.client.HTTPResponse]:
    """An open answer; we hang up in the end."""
    conn = http.client.HTTPConnection(urlsplit(client.url).netloc, timeout=15)
    conn.request("GET", path, headers={"Authorization": f"Bearer {client.token}"})
    answer = conn.getresponse()
    try:
        yield answer
    finally:
        answer.close()
        conn.close()


# -- well ------------------------------------------------------------------------------------


def test_bytes_come_with_their_place_in_the_file(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [telling(b"89", start=8, size=10, length=2)]
    reply = alice.get(path + "?stream=stderr&offset=8&limit=5")
    assert (reply.status, reply.body) == (200, b"89")
    names = ("Content-Type", "Content-Length", "XCE-Output-Offset", "XCE-Output-Size")
    told = [reply.headers[name] for name in (*names, "XCE-Output-Attempt")]
    assert told == ["application/octet-stream", "2", "8", "10", "1"]
    said = json.loads(worker.heard[0])
    assert said.pop("ticket")
    assert said == {
        "purpose": "output",
        "stream": "stderr",
        "offset": 8,
        "limit": 5,
        "follow": False,
    }


def test_without_a_limit_one_call_has_16_mib(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [telling(size=0, length=0)]
    assert alice.get(path).body == b""
    assert json.loads(worker.heard[0])["limit"] == 16 * 2**20


def test_the_database_knows_a_ticket_by_its_hash_alone(
    world: World, alice: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [telling(size=0, length=0)]
    alice.get(path)
    with world.database.connect() as conn:
        [(stored,)] = conn.execute("select sha256 from xce.ticket").fetchall()
    import base64

    shown = json.loads(worker.heard[0])["ticket"]
    assert hashlib.sha256(base64.urlsafe_b64decode(shown + "=")).digest() == stored


def test_following_goes_on_until_the_task_has_ended(
    world: World, alice: Client, worker: PlayedWorker, path: str
) -> None:
    """The worker hangs up after each part, as if it were started again every time."""

    def last(asked: dict[str, Any], visitor: ssl.SSLSocket) -> None:
        assert asked["offset"] == 6
        telling(b"", start=6, size=6)(asked, visitor)
        end_task(world, path)

    worker.answers = [
        telling(b"abc", size=3),
        telling(b"def", start=3, size=3),
        last,
        telling(b"gh", start=6, size=8, length=2),
    ]
    reply = alice.get(path + "?follow=true")
    assert (reply.status, reply.body) == (200, b"abcdefgh")
    asked = [json.loads(line) for line in worker.heard]
    assert [one["follow"] for one in asked] == [True, True, True, False]


def test_a_ticket_refused_by_a_worker_that_just_registered_anew_is_asked_for_again(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    refusing = telling(ok=False, code="refused")
    worker.answers = [refusing, telling(b"x", size=1, length=1)]
    assert alice.get(path).body == b"x"
    tickets = {json.loads(line)["ticket"] for line in worker.heard}
    assert len(tickets) == 2
    worker.answers = [refusing, refusing]
    assert alice.get(path).code == "unavailable"


# -- badly -----------------------------------------------------------------------------------


def test_nobody_but_the_registered_worker_is_shown_a_ticket(
    world: World,
    alice: Client,
    worker: PlayedWorker,
    path: str,
    certificates: tuple[Path, Path],
) -> None:
    worker.context = server_context(certificates[1])
    reply = alice.get(path)
    assert (reply.status, reply.code) == (503, "unavailable")
    assert "certificate" in reply.body["detail"]
    assert worker.met.wait(10)
    assert worker.heard == [b""]
    assert world.count("ticket") == 1


def test_a_worker_that_is_away_is_503(alice: Client, world: World, path: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        world.workers["h1"].register(door=(nobody, "ab" * 32))
        reply = alice.get(path)
    assert (reply.status, reply.code) == (503, "unavailable")
    assert reply.headers["Retry-After"]


@pytest.mark.parametrize("line", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"{}\n", b"x" * 10**6])
def test_what_is_no_answer_is_503(
    alice: Client, worker: PlayedWorker, path: str, line: bytes
) -> None:
    worker.answers = [lambda _, visitor: visitor.sendall(line)]
    assert alice.get(path).code == "unavailable"


@pytest.mark.parametrize(
    ("code", "expected"), [("gone", (404, "output_gone")), ("busy", (503, "unavailable"))]
)
def test_a_workers_refusal_is_the_callers(
    alice: Client, worker: PlayedWorker, path: str, code: str, expected: tuple[int, str]
) -> None:
    worker.answers = [telling(ok=False, code=code, detail="No such file or directory")]
    reply = alice.get(path)
    assert (reply.status, reply.code) == expected


def test_an_answer_that_was_cut_off_looks_cut_off(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [telling(b"abc", size=10, length=10)]
    with followed(alice, path) as answer, pytest.raises(http.client.IncompleteRead):
        answer.read()


def test_more_than_was_promised_is_not_passed_on(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [telling(b"abcdef", size=3, length=3), telling(b"abcdef", size=6)]
    assert alice.get(path).body == b"abc"
    assert alice.get(path + "?follow=true&limit=2").body == b"ab"


def test_a_follower_learns_that_a_part_is_missing(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [telling(b"abc", size=3), telling(b"x", start=100, size=101)]
    with followed(alice, path + "?follow=true") as answer:
        with pytest.raises(http.client.IncompleteRead) as broken:
            answer.read()
        assert broken.value.partial == b"abc"


def staying(worker: PlayedWorker) -> Answer:
    """Sends a little and stays until the visitor hangs up."""

    def answer(_: dict[str, Any], visitor: ssl.SSLSocket) -> None:
        telling(b"x", size=1)(_, visitor)
        visitor.recv(1)
        worker.hung_up.set()

    return answer


def test_a_client_that_hangs_up_ends_the_visit(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [staying(worker)]
    with followed(alice, path + "?follow=true") as answer:
        assert answer.read(1) == b"x"
    assert worker.hung_up.wait(10)


def test_a_revoked_token_follows_nothing_more(
    world: World,
    alice: Client,
    worker: PlayedWorker,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_feed, "LOOK_S", 0.05)
    worker.answers = [staying(worker)]
    with followed(alice, path + "?follow=true") as answer:
        assert answer.read(1) == b"x"
        with world.database.connect() as conn:
            conn.execute("update xce.token set revoked_at = clock_timestamp()")
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


def test_a_lost_host_ends_a_stream_only_when_its_task_is_given_up(
    world: World, alice: Client, worker: PlayedWorker, path: str
) -> None:
    """Followed: the host falls silent and comes back, and what it says then is heard."""

    def silent(_: dict[str, Any], visitor: ssl.SSLSocket) -> None:
        telling(b"a", size=1)(_, visitor)
        with world.database.connect() as conn:
            conn.execute("update xce.heartbeat set last_seen_at = '-infinity'")
            epoch = conn.execute("select epoch from xce.fence").fetchone()
            assert epoch is not None
            conn.execute("select xce.sweep_silence(%s)", epoch)
        worker.hung_up.set()

    worker.answers = [silent, telling(b"b", start=1, size=2)]
    with followed(alice, path + "?follow=true") as answer:
        assert answer.read(1) == b"a"
        assert worker.hung_up.wait(10)
        refused = alice.get(path)
        assert (refused.status, refused.code) == (503, "unavailable")
        stub = world.workers["h1"]
        job_id = int(path.split("/")[3])
        stub.register([stub._about(job_id, 0, boot_id="boot-of-straw")], door=worker.door)
        assert answer.read(1) == b"b"


# -- whose, and how many ------------------------------------------------------------------------


def test_only_the_owner_and_operators_read(
    alice: Client, bob: Client, operator: Client, worker: PlayedWorker, path: str
) -> None:
    worker.answers = [telling(b"x", size=1, length=1)] * 2
    refused = [bob.get(path), alice.get(path.replace("/0/", "/7/")), alice.get("/v1" + path)]
    assert [reply.status for reply in refused] == [404] * 3
    assert refused[0].body == refused[1].body
    for index in ("01", "-1", "x", "99999999999", "+0"):
        assert alice.get(path.replace("/0/", f"/{index}/")).code == "not_found"
    assert Client(alice.url).get(path).status == 401
    assert worker.heard == []
    assert alice.get(path).body == operator.get(path).body == b"x"


def test_a_query_that_makes_no_sense_is_refused(
    alice: Client, worker: PlayedWorker, path: str
) -> None:
    for query in (
        *("stream=both", "stream=", "offset=x", "offset=1.5", "offset=99999999999999999999"),
        *("limit=0", "limit=16777217", "limit=-1", "follow=yes", "attempt=0", "offset=1&offset=2"),
    ):
        reply = alice.get(f"{path}?{query}")
        assert (reply.status, reply.code) == (422, "invalid"), query
    assert alice.get(f"{path}?tail=5").code == "unknown_member"
    assert worker.heard == []


def test_a_task_that_has_not_started_has_written_nothing(world: World, alice: Client) -> None:
    made = alice.post("/v1/jobs", {"command": ["true"]})
    reply = alice.get(f"/v1/jobs/{made.body['id']}/tasks/0/output")
    assert (reply.status, reply.body, reply.headers["XCE-Output-Size"]) == (200, b"", "0")
    assert alice.get(f"/v1/jobs/{made.body['id']}/tasks/1/output").code == "not_found"


def test_a_follower_of_a_job_that_never_starts_ends_with_it(world: World, alice: Client) -> None:
    job = alice.post("/v1/jobs", {"command": ["true"]}).body["id"]
    with followed(alice, f"/v1/jobs/{job}/tasks/0/output?follow=true") as answer:
        assert answer.status == 200
        assert alice.post(f"/v1/jobs/{job}/kill").status == 202
        assert answer.read() == b""


def test_one_user_has_so_many_streams_at_most(
    alice: Client,
    operator: Client,
    worker: PlayedWorker,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relaying, "RELAYS_OF_A_USER_MAX", 1)
    worker.answers = [staying(worker), *[telling(b"x", size=1, length=1)] * 2]
    with followed(alice, path + "?follow=true") as answer:
        assert answer.read(1) == b"x"
        refused = alice.get(path)
        assert (refused.status, refused.code) == (429, "too_many")
        assert refused.body["streams_max"] == 1
        assert operator.get(path).status == 200
    assert worker.hung_up.wait(10)
    while (again := alice.get(path)).code == "too_many":
        pass
    assert again.status == 200


def test_the_document_says_that_it_is_bytes(alice: Client, world: World) -> None:
    document = alice.get("/schema/openapi.json").body
    operation = document["paths"]["/v1/jobs/{job_id}/tasks/{index}/output"]["get"]
    assert operation["responses"]["200"]["content"] == {"application/octet-stream": {}}
