"""What a worker does when its keeper dies or hangs: tasks and their ends outlive it."""

import asyncio
import os
import signal

import pytest

from tests.keeper.host import parent_of
from tests.worker.conftest import Host, is_alive
from tests.worker.link import MemoryLink

SLEEP = ("sleep", "1000")


async def test_a_killed_keeper_is_replaced_and_what_lives_is_adopted(
    host: Host, link: MemoryLink
) -> None:
    row = await link.until(link.add(*SLEEP), "running")
    view = await host.keeper()
    os.kill(view.pid, signal.SIGKILL)
    while is_alive(view.pid):
        await asyncio.sleep(0.01)
    after = await host.until_kept(lambda new: new.pid != view.pid)
    assert after.tasks[0].pid == view.tasks[0].pid
    assert is_alive(view.tasks[0].pid)
    link.stop(row)
    await link.until(row, "ended")
    assert (row.end["lost"], row.end["signal"]) == (False, signal.SIGTERM)


async def test_a_keeper_that_hangs_is_replaced_and_what_lives_is_adopted(
    host: Host, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await link.until(link.add(*SLEEP), "running")
    view = await host.keeper()
    monkeypatch.setattr("app.worker.keeper_client.ANSWER_LIMIT_S", 0.2)
    os.kill(view.pid, signal.SIGSTOP)
    link.stop(row)
    await link.until(row, "ended")
    assert not is_alive(view.pid)
    assert (row.end["lost"], row.end["signal"]) == (False, signal.SIGTERM)


async def test_a_stop_outlives_the_keeper_that_was_told(host: Host, link: MemoryLink) -> None:
    program = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    row = await link.until(link.add("sh", "-c", program), "running")
    while not host.output():
        await asyncio.sleep(0.01)
    link.stop(row, grace_s=0.3)
    view = await host.until_kept(lambda view: view.tasks[0].stopping)
    # After TERM and before the KILL: nobody but the worker knows of the stop any more.
    os.kill(view.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        await link.until(row, "ended")
    assert not is_alive(view.tasks[0].pid)


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_task_that_ended_while_no_keeper_lived_is_reported_truly(
    host: Host, link: MemoryLink, is_seen: bool
) -> None:
    """Its shim has seen it; where that was killed too, nobody has."""
    row = await link.until(link.add(*SLEEP), "running")
    view = await host.keeper()
    await host.kill_worker()
    pid = view.tasks[0].pid
    shim = parent_of(pid)
    for ended in (view.pid, *([] if is_seen else [shim]), pid):
        os.kill(ended, signal.SIGKILL)
    while is_alive(shim) or is_alive(pid):
        await asyncio.sleep(0.01)
    host.start_worker()
    await link.until(row, "ended")
    assert (row.end["lost"], row.end["execed"]) == (not is_seen, True)
    assert row.end["signal"] == (signal.SIGKILL if is_seen else None)
