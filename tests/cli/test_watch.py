"""`--watch`: in place on a terminal, anew on a pipe, and through an API that is away."""

import http.server
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.cli.main import run


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers as planned and hangs up where the plan says so; the last step is repeated."""

    plan: list[str]
    fine: bytes
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        step = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
        if step == "hang up":
            self.close_connection = True
            return
        status, kind, body = {
            "busy": (429, "application/problem+json", b'{"code": "too_many", "detail": "slow"}'),
            "gone": (404, "application/problem+json", b'{"code": "not_found", "detail": "no"}'),
        }.get(step, (200, "application/json", self.fine))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def answering(*plan: str, body: bytes = b'{"items": [], "next": null}') -> Iterator[str]:
    handler = type("Handler", (Answers,), {"plan": list(plan), "fine": body})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def watching(url: str, stdout: int) -> Iterator[subprocess.Popen[str]]:
    """`xcecli jobs --watch 0.1` of an own process, which Ctrl-C ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "jobs", "--watch", "0.1"],
        env={**os.environ, "XCE_API_URL": url, "XCE_TOKEN": "x", "TERM": "xterm"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130


def test_on_a_pipe_each_picture_is_printed_anew_and_trouble_is_told_once() -> None:
    plan = ("fine", "hang up", "hang up", "busy", "fine", "hang up", "fine")
    with answering(*plan) as url, watching(url, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline().split()[:2] for _ in range(5)]
        said = [process.stderr.readline() for _ in range(2)]
    assert lines == [["id", "name"], [], ["id", "name"], [], ["id", "name"]]
    for line in said:
        assert "no answer" in line
        assert line.endswith("still watching\n")


def test_on_a_terminal_it_is_redrawn_in_place() -> None:
    master, slave = pty.openpty()
    with answering("fine", "fine", "hang up", "fine") as url, watching(url, slave):
        os.close(slave)
        seen = ""
        while not re.search(r"no answer.*Ctrl-C ends(?!:)", seen, re.S):
            seen += os.read(master, 65536).decode()
    seen += drained(master)
    os.close(master)
    assert seen.startswith("\x1b[?7l\x1b[H\x1b[J")
    assert seen.count("\x1b[H") >= 4
    assert "\x1b[2J" not in seen
    assert "Ctrl-C ends: unavailable: no answer" in seen
    assert seen.rstrip().endswith("\x1b[?7h")


def drained(master: int) -> str:
    """What is left in a terminal whose other side is closed."""
    found = b""
    try:
        while part := os.read(master, 65536):
            found += part
    except OSError:
        # Linux says EIO where the last writer has gone.
        pass
    return found.decode()


def test_a_refusal_ends_the_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XCE_TOKEN", "x")
    with answering("fine", "gone") as url:
        monkeypatch.setenv("XCE_API_URL", url)
        with pytest.raises(SystemExit) as end:
            run(["jobs", "--watch=0.1"])
    assert end.value.code == 3
    told = capsys.readouterr()
    assert told.out.startswith("id")
    assert "not_found" in told.err


def test_too_many_calls_are_repeated_and_then_unavailable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XCE_TOKEN", "x")
    with answering("busy", "busy", "fine") as url:
        monkeypatch.setenv("XCE_API_URL", url)
        assert run(["jobs"]) == 0
    assert "trying again" in capsys.readouterr().err


@pytest.mark.parametrize("every", ["0", "x", "-1"])
def test_an_interval_that_is_none_is_refused(every: str) -> None:
    assert run(["jobs", f"--watch={every}"]) == 2
