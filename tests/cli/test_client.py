"""The client repeats what got no answer, under the same key, and no longer than it may."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from app.client.client import Client
from app.client.errors import NotConfigured, Refused, Unavailable
from app.client.link import Link
from app.wire.jobs import JobSubmit


class Flaky(http.server.BaseHTTPRequestHandler):
    """Hangs up on the first calls, says 503 to the next, then refuses properly."""

    keys: list[str]
    plan: list[str]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        step = self.plan.pop(0)
        if step == "hang up":
            self.close_connection = True
            return
        status = 503 if step == "503" else 409
        code = "unavailable" if step == "503" else "above_max"
        body = b'{"code": "%s", "detail": "d", "status": %d, "max_tasks": 4}' % (
            code.encode(),
            status,
        )
        self.send_response(status)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def flaky() -> Iterator[tuple[str, type[Flaky]]]:
    handler = type("Handler", (Flaky,), {"keys": [], "plan": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_post_is_repeated_under_one_key(flaky: tuple[str, type[Flaky]]) -> None:
    url, handler = flaky
    handler.plan[:] = ["hang up", "503", "hang up", "refuse"]
    said: list[str] = []
    client = Client(Link(url, "x", on_retry=said.append))
    with pytest.raises(Refused) as refused:
        client.submit(JobSubmit(command=["true"]))
    client.close()
    assert (refused.value.code, refused.value.status) == ("above_max", 409)
    assert refused.value.figures == {"max_tasks": 4}
    assert len(set(handler.keys)) == 1
    assert len(handler.keys) == 4
    assert len(said) == 3


def test_patience_ends(flaky: tuple[str, type[Flaky]]) -> None:
    url, handler = flaky
    handler.plan[:] = ["503"] * 50
    client = Client(Link(url, "x", patience_s=0.2))
    with pytest.raises(Unavailable):
        client.submit(JobSubmit(command=["true"]))
    client.close()
    assert 2 <= len(handler.keys) < 10


def test_two_posts_have_two_keys(flaky: tuple[str, type[Flaky]]) -> None:
    url, handler = flaky
    handler.plan[:] = ["refuse", "refuse"]
    client = Client(Link(url, "x"))
    for _ in range(2):
        with pytest.raises(Refused):
            client.submit(JobSubmit(command=["true"]))
    client.close()
    assert len(set(handler.keys)) == 2


def test_a_wrong_environment_says_what_to_set(tmp_path) -> None:
    token = tmp_path / "token"
    for environment in (
        {},
        {"XCE_API_URL": "127.0.0.1:80", "XCE_TOKEN": "x"},
        {"XCE_API_URL": "http://h"},
        {"XCE_API_URL": "http://h", "XCE_TOKEN_FILE": str(token)},
    ):
        with pytest.raises(NotConfigured):
            Client.from_environment(environment)
    token.write_text("secret\n")
    Client.from_environment({"XCE_API_URL": "http://h", "XCE_TOKEN_FILE": str(token)})
