"""`xcecli tui` as somebody starts it: what it says without a screen, and that it ends."""

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from tests.api.world import World
from tests.cli.conftest import Types

KEYS_THAT_QUIT = (b"q", b"\x03")


def test_what_keeps_it_from_starting_is_told_as_of_any_command(
    world: World, xcecli: Types, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = xcecli("tui")
    assert (piped.code, "needs a terminal" in piped.err) == (2, True)
    assert xcecli("tui", "--interval", "0").code == 2
    world.tokens["nobody"] = "made-up"
    assert (xcecli("tui", who="nobody").code, xcecli("tui", who="alice").code) == (7, 2)
    monkeypatch.setenv("XCE_API_URL", "nonsense")
    assert "XCE_API_URL" in xcecli("tui").err


def test_without_a_server_it_says_so_and_does_not_start(
    monkeypatch: pytest.MonkeyPatch, world: World, xcecli: Types
) -> None:
    monkeypatch.setenv("XCE_API_URL", "http://127.0.0.1:1")
    told = xcecli("tui")
    assert (told.code, "no answer from 127.0.0.1:1" in told.err) == (6, True)


def test_other_commands_do_not_pay_for_it() -> None:
    told = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys; from app.cli.main import run; run(['tui', '--help']); "
            "print([name for name in sys.modules if name in ('textual', 'rich', 'asyncio')])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--interval" in told.stdout
    assert told.stdout.endswith("[]\n")


@pytest.mark.parametrize("key", KEYS_THAT_QUIT, ids=["q", "ctrl-c"])
def test_on_a_terminal_it_draws_and_a_key_ends_it_at_once(world: World, key: bytes) -> None:
    world.user("alice").post("/v1/jobs", {"command": ["true"], "name": "first"})
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "tui"],
        env={
            **os.environ,
            **{"XCE_API_URL": world.url, "XCE_TOKEN": world.tokens["alice"], "TERM": "xterm"},
        },
        stdin=slave,
        stdout=slave,
        stderr=slave,
    ) as process:
        try:
            os.close(slave)
            read_until(master, b"first")
            typed_at = time.monotonic()
            os.write(master, key)
            # The terminal is given back: the other screen is left.
            read_until(master, b"\x1b[?1049l")
            assert process.wait(10) == 0
            assert time.monotonic() - typed_at < 5
        finally:
            process.kill()
            os.close(master)


def read_until(master: int, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        assert select.select([master], [], [], 10)[0], seen
        seen += os.read(master, 65536)
