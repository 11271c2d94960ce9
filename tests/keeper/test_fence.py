"""The fence: no word from the database for too long stops tasks, and keeps others from starting."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.worker.keeper_client import KeeperRefusedError, SpawnFailedError
from tests.keeper.host import Host, gone, lives


async def refused_stage(host: Host, index: int) -> str:
    with pytest.raises(SpawnFailedError) as refused:
        await host.spawn("true", index=index)
    return refused.value.failure.stage


async def test_nothing_starts_before_the_first_renewal(unfenced_host: Host) -> None:
    assert await refused_stage(unfenced_host, 0) == "fence"
    assert (await unfenced_host.client.list()).tasks == []
    await unfenced_host.renew()
    await unfenced_host.spawn("true")


async def test_an_expired_fence_stops_the_tasks_that_say_so(host: Host) -> None:
    await host.spawn("sleep", "60", index=0, fence="stop")
    keeps = await host.spawn("sleep", "60", index=1, fence="keep")
    await host.shell("trap '' TERM; echo up > up; sleep 60; sleep 60", index=2, grace_s=0.1)
    await host.written("up")
    await host.renew(0.05)
    stopped, killed = await host.ended(0), await host.ended(2)
    assert (stopped.signal, stopped.killed_by_fence, stopped.stopped) == (15, True, False)
    assert (killed.signal, killed.killed_by_fence) == (signal.SIGKILL, True)
    assert lives(keeps.pid)
    assert await refused_stage(host, 3) == "fence"
    assert await host.renew()
    await host.spawn("true", index=3)


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_fence_holds_without_a_keeper(host: Host, fate: signal.Signals) -> None:
    """PROTOCOL 26, also where the keeper is dead with nobody to start another, or hangs."""
    keeper_pid = (await host.client.list()).pid
    await host.renew(0.3)
    spawned = await host.shell(
        "trap '' TERM; echo up > up; setsid sleep 60; sleep 60", grace_s=0.1, fence="stop"
    )
    kept = await host.spawn("sleep", "60", index=1, fence="keep")
    await host.written("up")
    os.kill(keeper_pid, fate)
    await gone(spawned.pid)
    assert lives(kept.pid)
    if fate == signal.SIGKILL:
        await host.client.lost.wait()
        await host.connect()
    else:
        os.kill(keeper_pid, signal.SIGCONT)
    ending = await host.ended()
    assert (ending.killed_by_fence, ending.signal) == (True, signal.SIGKILL)


async def test_the_fence_counts_from_the_sending(host: Host) -> None:
    spawned = await host.spawn("sleep", "60")
    await host.renew(300, ago_s=10)  # Older than the fixture's own: old news.
    assert (await host.client.list()).fence.is_open
    sent_at_ns = (await host.client.list()).fence.sent_at_boottime_ns
    fence = await host.client.renew(0.2, sent_at_ns + 1)
    assert (fence.renewed, fence.deadline_boottime_ns) == (True, sent_at_ns + 200_000_001)
    assert (await host.ended()).killed_by_fence
    assert time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= fence.deadline_boottime_ns
    assert not lives(spawned.pid)


async def test_an_older_exchange_changes_nothing(host: Host) -> None:
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    newer = await host.client.renew(100, now_ns)
    older = await host.client.renew(900, now_ns - 1)
    assert not older.renewed
    assert older.deadline_boottime_ns == newer.deadline_boottime_ns
    longer = await host.client.renew(900, now_ns)
    assert longer.deadline_boottime_ns == now_ns + 900_000_000_000


async def test_a_renewal_from_the_future_is_refused(host: Host) -> None:
    later_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 3_600_000_000_000
    with pytest.raises(KeeperRefusedError, match="malformed"):
        await host.client.renew(300, later_ns)


async def test_a_successor_goes_on_with_the_same_deadline(host: Host) -> None:
    await host.spawn("sleep", "60")
    deadline_ns = (await host.client.list()).fence.deadline_boottime_ns
    await host.kill_keeper()
    await host.connect()
    fence = (await host.client.list()).fence
    assert (fence.is_open, fence.deadline_boottime_ns) == (True, deadline_ns)
    await host.spawn("true", index=1)


@pytest.mark.parametrize("state", ["expired", "missing", "torn", "of another boot"])
async def test_a_successor_without_an_open_fence_stops_the_tasks(host: Host, state: str) -> None:
    spawned = await host.spawn("sleep", "60")
    await host.kill_keeper()
    path = host.run_dir / "fence.json"
    fields = json.loads(path.read_text())
    match state:
        case "expired":
            path.write_text(json.dumps(fields | {"deadline_boottime_ns": 1}))
        case "missing":
            path.unlink()
        case "torn":
            path.write_text('{"boot_id"')
        case _:
            path.write_text(json.dumps(fields | {"boot_id": "x"}))
    await host.connect()
    assert (await host.ended()).killed_by_fence
    assert not lives(spawned.pid)


async def test_the_child_looks_at_the_fence_right_before_exec(tmp_path: Path) -> None:
    """Its deadline passes between the keeper's look and exec, as when the machine sleeps."""
    program = (
        "import os, sys; sys.path.append(sys.argv[1])\n"
        "from app.keeper.spawn import Launcher, Spec\n"
        "spec = Spec((7, 1, 0)); spec.argv = [b'touch', b'ran']; spec.cwd = os.getcwdb()\n"
        "launcher = Launcher(os.open('lock', os.O_RDWR | os.O_CREAT))\n"
        "for spare in (False, True):\n"
        "    if spare: launcher.prepare()\n"
        "    child = launcher.launch(spec.order(b'{}\\n', deadline_ns=1))\n"
        "    os.waitpid(child.pid, 0)\n"
        "    print(os.read(child.status_fd, 99).decode().partition('\\n')[2], end='')\n"
        "    os.rename('records/7.1.0.json', f'records/{spare}')\n"
    )
    (tmp_path / "records").mkdir()
    root = str(Path(__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, root],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    assert run.stdout == "failed fence 62 the fence has expired\n" * 2
    assert not (tmp_path / "ran").exists()
    for spare in (False, True):
        assert len((tmp_path / "records" / str(spare)).read_text().splitlines()) == 3


async def test_clients_hear_that_the_fence_has_expired(host: Host) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    client = await type(host.client).connect(
        host.run_dir, lambda event: heard.put_nowait(event.event)
    )
    await host.renew(0.01)
    async with asyncio.timeout(5):
        assert await heard.get() == "fenced"
    client.close()
