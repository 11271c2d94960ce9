"""What goes on when the client or the keeper dies, and what a successor knows."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from app.worker.keeper_client import KeeperClient, KeeperLostError, TaskExistsError
from tests.keeper.host import PATH, Host, gone, lives, parent_of

CLIENT = """
import asyncio, sys, time
from pathlib import Path
from app.worker.keeper_client import KeeperClient, TaskSpec

async def main():
    client = await KeeperClient.connect_or_start(Path(sys.argv[1]))
    await client.renew(300, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    spec = TaskSpec(job_id=7, attempt=1, index=0, argv=["/bin/sleep", "60"], env={}, cwd="/",
                    fence="stop", grace_s=1)
    print((await client.spawn(spec)).pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_killed_worker_leaves_keeper_and_tasks(tmp_path: Path) -> None:
    """H46: the next worker stops what the one before started, and learns the true end."""
    host = Host(tmp_path)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, str(host.run_dir)),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": PATH, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert worker.stdout is not None
    task_pid = int(await worker.stdout.readline())
    os.killpg(worker.pid, signal.SIGKILL)
    await worker.wait()
    await host.connect()
    assert lives(task_pid)
    assert (await host.task()).pid == task_pid
    await host.stop(5)
    ending = await host.ended()
    assert (ending.signal, ending.reaped, ending.stopped) == (signal.SIGTERM, True, True)
    await host.close()


async def test_the_death_of_the_keeper_is_noticed_at_once(host: Host) -> None:
    await host.shell("trap '' TERM; echo up > up; sleep 60; sleep 60", grace_s=600)
    await host.written("up")
    waiting = asyncio.ensure_future(host.client.shutdown(stop_all=True))
    other = await KeeperClient.connect(host.run_dir)
    await host.kill_keeper()
    assert host.client.changed.is_set()
    with pytest.raises(KeeperLostError):
        await waiting
    with pytest.raises(KeeperLostError):
        await host.client.list()
    with pytest.raises(KeeperLostError):
        await other.list()
    other.close()


async def test_a_successor_takes_over_what_lives(host: Host) -> None:
    spawned = await host.spawn("sleep", "60", task_id=4711)
    await host.kill_keeper()
    assert lives(spawned.pid)
    await host.connect()
    task = await host.task()
    assert (task.state, task.pid, task.start_ticks) == (
        "running",
        spawned.pid,
        spawned.start_ticks,
    )
    assert (task.adopted, task.task_id) == (True, 4711)
    assert task.exec_at_monotonic_ns == spawned.exec_at_monotonic_ns
    with pytest.raises(TaskExistsError):
        await host.spawn("sleep", "60")
    os.kill(spawned.pid, signal.SIGKILL)
    ending = await host.ended()
    assert (ending.signal, ending.reaped, ending.lost) == (signal.SIGKILL, True, False)
    assert ending.execed


async def test_an_exit_code_outlives_the_keeper(host: Host) -> None:
    """H46: also of a task that ends while there is no keeper at all."""
    spawned = await host.shell("trap 'exit 42' USR1; echo up > up; while :; do sleep 0.01; done")
    await host.written("up")
    shim_pid = parent_of(spawned.pid)
    await host.kill_keeper()
    os.kill(spawned.pid, signal.SIGUSR1)
    await gone(shim_pid)
    await host.connect()
    ending = await host.ended()
    assert (ending.exit_code, ending.reaped, ending.lost) == (42, True, False)
    assert ending.cpu_used_us


async def test_a_successor_stops_a_whole_tree(host: Host) -> None:
    """Its orphans do not become children of the successor."""
    script = (
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > orphan; sleep 60; sleep 60' & "
        "(sleep 60; sleep 60) & echo $! > child; sleep 60 & wait; sleep 60"
    )
    await host.shell(script)
    pids = [int(await host.written(name)) for name in ("orphan", "child")]
    await host.kill_keeper()
    await host.connect()
    await host.stop(0.1)
    ending = await host.ended()
    assert (ending.signal, ending.stopped) == (signal.SIGKILL, True)
    assert not any(lives(pid) for pid in pids)


async def test_a_tree_without_its_main_process_ends_without_a_keeper(host: Host) -> None:
    spawned = await host.shell(
        "(trap '' TERM; setsid sh -c 'echo $$ > orphan; sleep 60') & sleep 60", grace_s=0.1
    )
    orphan = int(await host.written("orphan"))
    await host.kill_keeper()
    os.kill(spawned.pid, signal.SIGKILL)
    await gone(spawned.pid)
    await gone(orphan)
    await host.connect()
    ending = await host.ended()
    assert (ending.signal, ending.lost, ending.execed) == (signal.SIGKILL, False, True)


async def test_evidence_survives_the_keeper(host: Host) -> None:
    await host.shell("exit 9")
    before = await host.ended()
    await host.kill_keeper()
    await host.connect()
    assert await host.ended() == before


async def test_after_a_reboot_nothing_lives(host: Host) -> None:
    """H46, second run. The record names this very test, a process of "another boot"."""
    spawned = await host.spawn("sleep", "60")
    path = host.run_dir / "records" / "7.1.0.json"
    record = path.read_text()
    await host.stop(0)
    await host.ended()
    await host.kill_keeper()
    first, _, _, last = record.splitlines()
    fields = json.loads(first) | {"boot_id": "11111111-2222-3333-4444-555555555555"}
    own = Path("/proc/self/stat").read_text().strip()
    path.write_text(f"{json.dumps(fields)}\n{own}\n{own}\n{last}\n")
    path.with_name("7.1.0.exit.json").unlink()
    await host.connect()
    assert spawned.pid != os.getpid()
    ending = await host.ended()
    assert (ending.lost, ending.execed) == (True, True)
    await host.stop(0)


async def test_a_pid_used_again_is_not_the_task(host: Host) -> None:
    await host.spawn("sleep", "60")
    path = host.run_dir / "records" / "7.1.0.json"
    record = path.read_text().splitlines()
    await host.stop(0)
    await host.ended()
    await host.kill_keeper()
    own = Path("/proc/self/stat").read_text().strip().split(" ")
    own[21] = str(int(own[21]) - 1)
    path.write_text("\n".join([record[0], *[" ".join(own)] * 2, record[3], ""]))
    path.with_name("7.1.0.exit.json").unlink()
    await host.connect()
    assert (await host.ended()).lost


@pytest.mark.parametrize("content", ["", "{", "[]\n1 (x) S\n", '{"pid": 1}\n'])
async def test_a_torn_record_is_a_lost_task(host: Host, content: str) -> None:
    await host.kill_keeper()
    (host.run_dir / "records" / "7.1.0.json").write_text(content)
    (host.run_dir / "records" / "7.1.1.exit.json").write_text("{}")
    (host.run_dir / "records" / "7.1.2.exit.json.new").write_text("{")
    await host.connect()
    ending = await host.ended()
    assert (ending.lost, ending.execed, ending.failure) == (True, False, None)
    await host.client.forget(7, 1, 0)
    assert list((host.run_dir / "records").iterdir()) == []


async def test_there_is_one_keeper_for_a_folder(tmp_path: Path) -> None:
    host = Host(tmp_path)
    clients = await asyncio.gather(*(KeeperClient.connect_or_start(host.run_dir) for _ in range(4)))
    assert len({(await client.list()).pid for client in clients}) == 1
    for client in clients[1:]:
        client.close()
    host.client = clients[0]
    await host.close()


async def test_a_child_on_its_way_to_exec_holds_a_successor_off(host: Host) -> None:
    """Otherwise the successor could answer "no such task", and the task would start after that."""
    os.mkfifo(host.work / "fifo")
    call = asyncio.ensure_future(host.shell("echo ran > ran; sleep 60", stdout="fifo"))
    await host.task()
    await host.kill_keeper()
    with pytest.raises(KeeperLostError):
        await call
    succession = asyncio.ensure_future(host.connect())
    done, _ = await asyncio.wait([succession], timeout=0.3)
    assert not done
    with (host.work / "fifo").open():
        await succession
        assert (await host.task()).state == "running"
        await host.written("ran")
        await host.stop(0)
        await host.ended()


async def test_a_terminated_keeper_leaves_tasks_to_its_successor(host: Host) -> None:
    spawned = await host.spawn("sleep", "60")
    pid = (await host.client.list()).pid
    os.kill(pid, signal.SIGTERM)
    await gone(pid)
    assert not (host.run_dir / "keeper.sock").exists()
    assert lives(spawned.pid)
    await host.connect()
    assert (await host.task()).state == "running"
