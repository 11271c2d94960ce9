"""What a keeper costs: nothing when idle, little memory, and no leak."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.keeper.host import Host

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="the descriptors of a process that hides its memory are root's to see"
)


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13])


def context_switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary")).split()[1])


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def quiet(host: Host) -> None:
    """Until the keeper has its one spare child beside its tasks, and sleeps."""
    view = await host.client.list()
    while len(children(view.pid)) != 1 + sum(task.exit is None for task in view.tasks):
        await asyncio.sleep(0.005)
    before = -1
    while before != (before := context_switches(view.pid)):
        await asyncio.sleep(0.02)


@as_root
async def test_a_hundred_starts_leave_no_process_and_no_descriptor(host: Host) -> None:
    keeper_pid = (await host.client.list()).pid
    await host.spawn("sleep", "60", index=1000)
    await quiet(host)
    descriptors = Path(f"/proc/{keeper_pid}/fd")
    before = {fd.name: fd.readlink() for fd in descriptors.iterdir()}
    for index in range(100):
        script = ["exit 0", "(setsid sleep 0.01 &)", "no-such-program-at-all", "kill -9 $$"][
            index % 4
        ]
        await host.shell(script, index=index, grace_s=0)
        if index % 7 == 0:
            await host.stop(0, index)
    for index in range(100):
        await host.ended(index)
        await host.client.forget(7, 1, index)
    await quiet(host)
    assert len({fd.name for fd in descriptors.iterdir()}) == len(before)
    assert len((await host.client.list()).tasks) == 1
    assert len(list((host.run_dir / "records").iterdir())) == 1


async def test_an_idle_keeper_does_nothing(host: Host) -> None:
    keeper_pid = (await host.client.list()).pid
    for index in range(10):
        await host.spawn("sleep", "60", index=index)
    await quiet(host)
    ticks, switches = cpu_ticks(keeper_pid), context_switches(keeper_pid)
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert cpu_ticks(keeper_pid) == ticks
    assert context_switches(keeper_pid) == switches


async def test_a_keeper_is_small(host: Host) -> None:
    keeper_pid = (await host.client.list()).pid
    for index in range(20):
        await host.shell("exit 0", index=index)
        await host.ended(index)
    lines = Path(f"/proc/{keeper_pid}/status").read_text().splitlines()
    resident_kib = int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
    assert resident_kib < 25 * 1024
