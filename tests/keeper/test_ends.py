"""How tasks end: by themselves, by order, and always with their whole tree."""

import asyncio
import os
import signal
import socket
import sys

import pytest

from app.worker.keeper_client import KeeperRefusedError, SpawnFailedError
from tests.keeper.host import PATH, Host, gone, lives

HOLD_A_PORT = """
import os, signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    os.setsid()
    if os.fork():
        os._exit(0)
with socket.create_server(("127.0.0.1", 0)) as server:
    with open("port", "w") as file:
        print(server.getsockname()[1], os.getpid(), file=file)
    time.sleep(60)
"""


async def test_an_exit_code_is_kept_until_forgotten(host: Host) -> None:
    await host.shell("exit 42")
    ending = await host.ended()
    assert (ending.exit_code, ending.signal, ending.reaped, ending.lost) == (42, None, True, False)
    assert (ending.execed, ending.stopped, ending.killed_by_fence) == (True, False, False)
    assert ending.started_at_monotonic_ns < ending.ended_at_monotonic_ns
    await host.client.forget(7, 1, 0)
    assert (await host.client.list()).tasks == []
    assert list((host.run_dir / "records").iterdir()) == []


async def test_a_live_task_is_not_forgotten(host: Host) -> None:
    await host.spawn("sleep", "60")
    with pytest.raises(KeeperRefusedError, match="not_exited"):
        await host.client.forget(7, 1, 0)


async def test_a_signal_is_told_apart_from_an_exit_code(host: Host) -> None:
    await host.shell("kill -USR1 $$")
    ending = await host.ended()
    assert (ending.exit_code, ending.signal) == (None, signal.SIGUSR1)


async def test_usage_counts_descendants(host: Host) -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    memory = "x = bytearray(60_000_000)"
    await host.shell(f'{sys.executable} -c "{spin}"; {sys.executable} -c "{memory}"; true')
    ending = await host.ended()
    assert ending.cpu_used_us is not None
    assert ending.mem_peak_mib is not None
    assert ending.cpu_used_us >= 300_000
    assert 57 <= ending.mem_peak_mib < 200


async def test_stop_reaches_the_whole_tree_once(host: Host) -> None:
    await host.shell(
        "trap 'echo parent >> told; wait; exit 3' TERM;"
        " (trap 'echo child >> told; exit' TERM; echo up > up; while :; do sleep 0.01; done) & wait"
    )
    await host.written("up")
    await host.stop(5)
    ending = await host.ended()
    assert (ending.exit_code, ending.stopped) == (3, True)
    assert sorted((host.work / "told").read_text().split()) == ["child", "parent"]


async def test_a_task_that_ignores_the_order_is_killed_after_the_grace(host: Host) -> None:
    await host.shell("trap '' TERM; echo up > up; sleep 60 & wait; sleep 60")
    await host.written("up")
    await host.stop(0.1)
    ending = await host.ended()
    assert (ending.signal, ending.stopped) == (signal.SIGKILL, True)


async def test_a_second_order_with_less_grace_is_sooner(host: Host) -> None:
    await host.shell("trap '' TERM; echo up > up; while :; do sleep 0.01; done")
    await host.written("up")
    await host.stop(600)
    await host.stop(900)
    assert (await host.task()).stopping
    await host.stop(0)
    assert (await host.ended()).signal == signal.SIGKILL
    await host.stop(0)  # Once more is no error.


async def test_a_stopped_process_obeys_too(host: Host) -> None:
    spawned = await host.spawn("sleep", "60")
    os.kill(spawned.pid, signal.SIGSTOP)
    await host.stop(60)
    assert (await host.ended()).signal == signal.SIGTERM


@pytest.mark.parametrize("order", ["stop", "exit"])
async def test_nothing_is_left_of_a_tree_that_hides_and_does_not_obey(
    host: Host, order: str
) -> None:
    """H45: shell, wrapper, worker; the worker leaves session and parents and ignores TERM."""
    ends = "while [ ! -s port ]; do sleep 0.01; done" if order == "exit" else "sleep 60"
    script = f"sh -c '{sys.executable} -c \"$PROGRAM\"; {ends}'; exit 5"
    await host.shell(script, env={"PATH": PATH, "PROGRAM": HOLD_A_PORT}, grace_s=0.1)
    port, worker_pid = map(int, (await host.written("port")).split())
    if order == "stop":
        assert lives(worker_pid)
        await host.stop(0.1)
    ending = await host.ended()
    assert not lives(worker_pid)
    with socket.create_server(("127.0.0.1", port)):
        pass
    assert ending.stopped == (order == "stop")
    assert ending.exit_code == (5 if order == "exit" else None)


@pytest.mark.parametrize("flees", ["pass", "os.setsid()"])
async def test_a_process_that_forks_and_ends_all_the_time_is_caught(host: Host, flees: str) -> None:
    """It ends by itself before the machine runs out of pids, but must not come so far."""
    program = f"import os\nfor _ in range(10_000):\n    if os.fork(): os._exit(0)\n    {flees}\n"
    program += "open('survived', 'w')"
    await host.spawn(sys.executable, "-I", "-S", "-c", program, grace_s=0.05)
    await host.ended()
    assert not (host.work / "survived").exists()


async def test_the_task_stays_listed_while_its_tree_lingers(host: Host) -> None:
    lingering = "(trap '' TERM; echo up > up; sleep 60; sleep 60) &"
    await host.shell(f"{lingering} while [ ! -s up ]; do sleep 0.01; done", grace_s=600)
    task = await host.until(lambda task: task.state == "draining")
    assert task.stopping
    await host.stop(0)
    ending = await host.ended()
    assert (ending.exit_code, ending.stopped) == (0, False)


HIDDEN = "trap '' TERM; echo $$ > pid; sleep 60; sleep 60"
HIDE = "env -i setsid sh -c 'sh ./hidden & :'"


@pytest.fixture
def hidden(host: Host) -> None:
    (host.work / "hidden").write_text(HIDDEN)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("order", ["stop", "exit"])
async def test_nothing_hides_among_other_tasks(host: Host, order: str) -> None:
    """R9, H45: no parent, session, environment or group tells whose the hidden process is."""
    others = [await host.spawn("sleep", "60", index=index) for index in (1, 2)]
    last = "exit 3" if order == "exit" else "sleep 60"
    await host.shell(f"{HIDE} & while [ ! -s pid ]; do sleep 0.01; done; {last}", grace_s=0.1)
    hidden = int(await host.written("pid"))
    if order == "stop":
        assert lives(hidden)
        await host.stop(0.1)
    ending = await host.ended()
    assert not lives(hidden)
    assert ending.exit_code == (3 if order == "exit" else None)
    assert all(lives(other.pid) for other in others)


@pytest.mark.usefixtures("hidden")
async def test_what_hides_keeps_the_task_listed(host: Host) -> None:
    await host.spawn("sleep", "60", index=1)
    await host.shell(f"{HIDE} & while [ ! -s pid ]; do sleep 0.01; done", grace_s=600)
    hidden = int(await host.written("pid"))
    await host.until(lambda task: task.state == "draining")
    assert lives(hidden)
    await host.stop(0)
    await host.ended()
    await gone(hidden)


@pytest.mark.usefixtures("hidden")
async def test_a_task_whose_shim_is_killed_ends_with_its_tree(host: Host) -> None:
    """A task of our own user can do that to itself; it is lost, and gains nothing by it."""
    other = await host.spawn("sleep", "60", index=1)
    spawned = await host.shell(
        f"{HIDE} & while [ ! -s pid ]; do sleep 0.01; done; kill -9 $PPID; sleep 60"
    )
    hidden = int(await host.written("pid"))
    ending = await host.ended()
    assert (ending.lost, ending.execed, ending.failure) == (True, True, None)
    assert not lives(spawned.pid)
    assert not lives(hidden)
    assert lives(other.pid)
    await host.spawn("true", index=2)
    assert (await host.ended(2)).exit_code == 0


async def test_a_task_that_stops_its_shim_is_ended_all_the_same(host: Host) -> None:
    await host.shell("trap '' TERM; kill -STOP $PPID; echo up > up; sleep 60; sleep 60")
    await host.written("up")
    await host.stop(0.1)
    assert (await host.ended()).signal == signal.SIGKILL


async def test_another_task_is_left_alone(host: Host) -> None:
    """R11, although both have orphans among the keeper's children."""
    daemon = "(setsid sleep 60 & echo $! > {0}; wait) & while [ ! -s {0} ]; do sleep 0.01; done;"
    await host.shell(daemon.format("a") + " sleep 60", index=0)
    await host.shell(daemon.format("b"), index=1, grace_s=0.1)
    await host.ended(1)
    await gone(int(await host.written("b")))
    assert lives(int(await host.written("a")))
    assert (await host.task(0)).state == "running"


async def test_an_order_before_exec_ends_what_hangs_there(host: Host) -> None:
    """Opening a pipe that nobody reads waits for ever; the program counts as never run."""
    os.mkfifo(host.work / "fifo")
    call = asyncio.ensure_future(host.spawn("true", stdout="fifo"))
    assert (await host.task()).state == "starting"
    await host.stop(0.05)
    with pytest.raises(SpawnFailedError, match="start: ended before exec by SIGKILL"):
        await call
    ending = await host.ended()
    assert (ending.execed, ending.stopped) == (False, True)
