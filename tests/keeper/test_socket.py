"""The socket: what comes in may be anything; what goes out is always an answer."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.worker.keeper_client import (
    KeeperClient,
    KeeperEvent,
    KeeperLostError,
    KeeperRefusedError,
)
from tests.keeper.host import LIMIT_S, Host, gone, let_anyone_in


class Line:
    """A bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, *lines: bytes) -> dict[str, object]:
        self._writer.write(b"\n".join([*lines, b""]))
        await self._writer.drain()
        return await self.answer()

    async def answer(self) -> dict[str, object]:
        async with asyncio.timeout(LIMIT_S):
            return json.loads(await self._reader.readline())

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def connected(host: Host) -> AsyncIterator[Line]:
    folder = os.open(host.run_dir, os.O_PATH)
    line = Line(*await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/keeper.sock"))
    os.close(folder)
    yield line
    await line.close()


SPAWN = {
    "do": "spawn",
    "job_id": 7,
    "attempt": 1,
    "index": 0,
    "argv": ["true"],
    "env": {},
    "cwd": "/",
    "fence": "stop",
    "grace_s": 1,
}


MALFORMED_LINES = [
    b"",
    b"nonsense",
    b"\xff\x00",
    b"[1]",
    b"{}",
    b'{"do": 1}',
    b'{"do": "list"',
    b"[" * 100_000,
    b'{"do": "list", "id": ' + b"[" * 900 + b"]" * 900 + b"]",
    b'{"do": "stop", "job_id": true, "attempt": 1, "index": 1}',
    b'{"do": "stop", "job_id": -1, "attempt": 1, "index": 1}',
    b'{"do": "forget", "job_id": 9223372036854775808, "attempt": 1, "index": 1}',
    b'{"do": "renew", "fence_s": NaN, "sent_at_boottime_ns": 1}',
    b'{"do": "renew", "fence_s": Infinity, "sent_at_boottime_ns": 1}',
    b'{"do": "renew", "fence_s": "1", "sent_at_boottime_ns": 1}',
    b'{"do": "renew", "fence_s": 1, "sent_at_boottime_ns": 1.5}',
]

MALFORMED_ORDERS: list[dict[str, object]] = [
    {"argv": []},
    {"argv": "true"},
    {"argv": [""]},
    {"argv": ["a\0b"]},
    {"argv": ["\ud800"]},
    {"argv": [1]},
    {"env": {"A=B": "x"}},
    {"env": {"": "x"}},
    {"env": {"A": 1}},
    {"env": []},
    {"cwd": ""},
    {"cwd": None},
    {"stdout": 3},
    {"fence": "maybe"},
    {"grace_s": -1},
    {"grace_s": True},
    {"uid": 1},
    {"uid": 4294967295, "gid": 1},
    {"uid": 1, "gid": 1, "groups": [-1]},
    {"task_id": [[]]},
    {"task_id": "\ud800"},
    {"job_id": "../../etc"},
    {"limits": []},
    {"limits": {"cpus": -1}},
    {"limits": {"cpus": 1.5}},
    {"limits": {"mem_mib": 2**41}},
    {"limits": {"swap": 1}},
]


async def test_a_malformed_line_is_answered_and_the_connection_kept(host: Host) -> None:
    async with connected(host) as bare:
        for line in MALFORMED_LINES:
            answer = await bare.ask(line)
            assert (line, answer["ok"], answer["code"]) == (line, False, "malformed")
            assert (await bare.ask(b'{"do": "list", "id": 5}'))["id"] == 5


async def test_a_malformed_order_starts_nothing(host: Host) -> None:
    async with connected(host) as bare:
        for change in MALFORMED_ORDERS:
            answer = await bare.ask(json.dumps(SPAWN | change | {"id": 3}).encode())
            code = answer["code"]
            assert (change, answer["id"], answer["ok"], code) == (change, 3, False, "malformed")
    assert (await host.client.list()).tasks == []


async def test_an_unknown_verb_and_an_unknown_task_are_refused(host: Host) -> None:
    async with connected(host) as bare:
        assert (await bare.ask(b'{"do": "dance", "id": 1}'))["code"] == "unknown_verb"
    with pytest.raises(KeeperRefusedError, match="unknown_task"):
        await host.stop(1)
    await host.client.forget(7, 1, 0)


async def test_a_line_without_end_closes_its_connection_only(host: Host) -> None:
    async with connected(host) as bare:
        with contextlib.suppress(ConnectionError):
            assert (await bare.ask(b"x" * 5_000_000))["code"] in ("too_long", "malformed")
    await host.client.list()


async def test_lines_may_come_in_pieces_and_in_heaps(host: Host) -> None:
    async with connected(host) as bare:
        first = await bare.ask(*(b'{"do": "list", "id": %d}' % number for number in range(50)))
        rest = [await bare.answer() for _ in range(49)]
        assert [answer["id"] for answer in (first, *rest)] == list(range(50))


async def test_a_client_that_leaves_before_its_answer_changes_nothing(host: Host) -> None:
    async with connected(host) as bare:
        spawn = SPAWN | {"id": 1, "argv": ["/bin/sh", "-c", "exit 5"]}
        bare._writer.write(json.dumps(spawn).encode() + b"\n")
    assert (await host.ended()).exit_code == 5


async def test_every_client_hears_the_bell(host: Host) -> None:
    heard: asyncio.Queue[KeeperEvent] = asyncio.Queue()
    other = await KeeperClient.connect(host.run_dir, heard.put_nowait)
    await host.spawn("true")
    async with asyncio.timeout(LIMIT_S):
        assert await heard.get() == KeeperEvent("started", 7, 1, 0)
        ended = await heard.get()
    assert (ended.event, ended.job_id, ended.attempt, ended.index) == ("exited", 7, 1, 0)
    assert ended.task is not None
    assert ended.task.exit is not None
    assert ended.task.exit.exit_code == 0
    other.close()


async def test_a_long_folder_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120) / ("y" * 120)
    deep.mkdir(parents=True)
    host = Host(deep)
    await host.connect()
    await host.close()


async def test_too_many_connections_are_turned_away(host: Host) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(15):
            bare = await stack.enter_async_context(connected(host))
            await bare.ask(b'{"do": "list"}')
        extra = await KeeperClient.connect(host.run_dir)
        with pytest.raises(KeeperLostError):
            await extra.list()
    await host.client.list()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to come as somebody else")
async def test_another_user_is_turned_away(host: Host) -> None:
    let_anyone_in(host.run_dir)
    (host.run_dir / "keeper.sock").chmod(0o777)
    program = (
        "import socket, sys; line = socket.socket(socket.AF_UNIX); line.connect(sys.argv[1]);"
        " line.settimeout(5); print(line.recv(99))"
    )
    stranger = await asyncio.create_subprocess_exec(
        *("/usr/bin/python3", "-I", "-c", program, "keeper.sock"),
        cwd=host.run_dir,
        user=65534,
        stdout=subprocess.PIPE,
    )
    output, _ = await stranger.communicate()
    assert output == b"b''\n"


async def test_shutdown_is_refused_while_tasks_live(host: Host) -> None:
    await host.spawn("sleep", "60")
    with pytest.raises(KeeperRefusedError, match="tasks_live"):
        await host.client.shutdown()
    assert (await host.task()).state == "running"


async def test_shutdown_stops_all_and_leaves_nothing_but_evidence(host: Host) -> None:
    keeper_pid = (await host.client.list()).pid
    await host.spawn("sleep", "60", index=0)
    await host.shell("trap '' TERM; echo up > up; sleep 60; sleep 60", index=1, grace_s=600)
    await host.written("up")
    await host.client.shutdown(stop_all=True, grace_s=0.1)
    await gone(keeper_pid)
    names = {path.name for path in host.run_dir.iterdir()}
    assert names == {"records", "fence.json", "keeper.lock", "keeper.log"}
    log = (host.run_dir / "keeper.log").read_text()
    assert log.startswith("cgroup v2")
    assert log.count("\n") == 1
    await host.connect()
    assert (await host.ended(0)).signal == 15
    assert (await host.ended(1)).signal == 9


def test_the_keeper_needs_its_folder_alone(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-m", "app.keeper"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert run.returncode == 2
    assert "usage" in run.stderr
