"""Starts programs of ours and waits for facts with a deadline."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from app.client.client import Client

Found = TypeVar("Found")
XCE = (sys.executable, "-m", "app.admin.main")
STOP_S = 15.0


def eventually(look: Callable[[], Found], what: str, *, within_s: float = 15.0) -> Found:
    """What `look` finds, as soon as that is true; fails when the time is up."""
    give_up_at_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < give_up_at_s, f"not within {within_s} s: {what}"
        time.sleep(0.01)
    return found


class Up:
    """A running `xce up --json`."""

    def __init__(self, process: subprocess.Popen[str], told: dict[str, Any]) -> None:
        self.process = process
        self.told = told
        self.folder = Path(told["token_file"]).parent
        self.lines_after = ""
        self._clients: list[Client] = []

    @property
    def state(self) -> dict[str, Any]:
        """up.json as it is now."""
        state: dict[str, Any] = json.loads((self.folder / "up.json").read_text())
        return state

    @property
    def pids(self) -> list[int]:
        pids = self.state["pids"]
        servers = [] if pids["postgres"] is None else [pids["postgres"]]
        return [*servers, *pids["controllers"], *pids["workers"], *pids["keepers"]]

    def client(self, *, api: str | None = None, is_operator: bool = False) -> Client:
        """The owner's, unless the operator's is wanted."""
        token_file = self.told["token_file" if is_operator else "owner_token_file"]
        client = Client.from_environment(
            {"XCE_API_URL": api or self.told["api"], "XCE_TOKEN_FILE": token_file}
        )
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def stop(self) -> float:
        """SIGTERM, and how long it took; the exit code must be 0."""
        started_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.lines_after = self.process.stdout.read()
        assert self.process.wait(STOP_S * 2) == 0
        return time.monotonic() - started_s

    def kill(self) -> None:
        """SIGKILL to the supervisor alone."""
        self.process.kill()
        self.process.wait()

    def check(self) -> None:
        """`xce check` finds no rule broken."""
        checked = run("check", XCE_DATABASE_URL=self.told["database_url"])
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert checked.stdout.startswith("ok (")


class Starting:
    """An `xce up` on its way, followed by what it says."""

    def __init__(self, *options: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*XCE, "up", "--json", "--port", "0", *options],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, words: str) -> None:
        """Until it has said these words."""
        assert self.process.stderr is not None
        said = []
        for line in iter(self.process.stderr.readline, ""):
            said.append(line)
            if words in line:
                return
        raise AssertionError(f"it never said {words!r}:\n{''.join(said)}")

    def end(self, number: signal.Signals) -> int:
        """Signal it, and its exit code."""
        self.process.send_signal(number)
        try:
            self.process.communicate(timeout=STOP_S * 2)
        finally:
            self.process.kill()
        return self.process.returncode


@contextmanager
def up(
    *options: str,
    program: Sequence[str] = XCE,
    started: Mapping[str, Any] = MappingProxyType({}),
    **environment: str,
) -> Iterator[Up]:
    """A cluster on free ports; stopped in the end unless the test did it.

    `started` are further arguments for Popen.
    """
    process = subprocess.Popen(
        [*program, "up", "--json", "--port", "0", *options],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **started,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        running = Up(process, json.loads(line))
        try:
            yield running
            if process.poll() is None:
                running.stop()
        finally:
            running.close()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_S * 2)
        process.stdout.close()
        process.stderr.close()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `xce` to its end."""
    return subprocess.run(
        [*XCE, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_listening(url: str) -> bool:
    place = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((place.hostname, place.port)) == 0


def processes_with(text: str) -> Sequence[str]:
    """The command lines of living processes that name this text there or in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        told = read(folder / "cmdline") + read(folder / "environ")
        if text.encode() in told and int(folder.name) != os.getpid():
            found.append(read(folder / "cmdline").decode(errors="replace").replace("\0", " "))
    return found


def read(path: Path) -> bytes:
    """Nothing of a process that ended meanwhile, or that hides its memory from us."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
