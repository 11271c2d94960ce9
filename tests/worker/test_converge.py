"""A worker with a real keeper brings its host to what a database wants."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from app.worker.reconcile import Key
from tests.worker.conftest import Host, is_alive, own_user
from tests.worker.link import MemoryLink

SLEEP = ("sleep", "1000")


async def test_a_task_is_started_reported_up_and_its_end_with_its_exit_code(
    host: Host, link: MemoryLink
) -> None:
    row = await link.until(link.add("sh", "-c", "echo hello; exit 7"), "ended")
    assert row.events == ["up", "gone"]
    assert (row.end["execed"], row.end["exit_code"], row.end["signal"]) == (True, 7, None)
    assert row.end["lost"] is False
    assert row.end["cpu_used_us"] >= 0
    assert row.end["mem_peak_mib"] > 0
    assert host.output() == "hello\n"


async def test_an_acknowledged_end_leaves_no_record(host: Host, link: MemoryLink) -> None:
    await link.until(link.add("true"), "ended")
    await host.until_kept(lambda view: not view.tasks)
    assert list((host.run_dir / "records").iterdir()) == []


async def test_a_stopped_task_ends_and_its_end_is_reported(host: Host, link: MemoryLink) -> None:
    row = await link.until(link.add(*SLEEP), "running")
    link.stop(row)
    await link.until(row, "ended")
    assert row.end["signal"] == signal.SIGTERM


async def test_a_task_that_ignores_term_is_killed_after_its_grace(
    host: Host, link: MemoryLink
) -> None:
    program = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    row = await link.until(link.add("sh", "-c", program), "running")
    while not host.output():
        await asyncio.sleep(0.01)
    link.stop(row, grace_s=60)
    await host.until_kept(lambda view: view.tasks[0].stopping)
    link.stop(row, grace_s=0.1)
    await link.until(row, "ended")
    assert row.end["signal"] == signal.SIGKILL


async def test_a_missing_command_is_reported_and_never_as_up(host: Host, link: MemoryLink) -> None:
    row = await link.until(link.add("no-such-program"), "ended")
    assert row.events == ["gone"]
    assert row.end["execed"] is False
    assert row.end["reason"] == "exec: No such file or directory: no-such-program"


async def test_a_missing_cwd_is_reported(host: Host, link: MemoryLink) -> None:
    row = await link.until(link.add("true", cwd="/no/such/folder"), "ended")
    assert row.events == ["gone"]
    assert row.end["execed"] is False
    assert row.end["reason"] == "cwd: No such file or directory: /no/such/folder"


@pytest.mark.parametrize("pattern", ["../%j.out", "/tmp/xce-%j.out", "a/../../b", "."])
async def test_output_that_leads_out_of_the_run_folder_is_refused(
    host: Host, link: MemoryLink, pattern: str
) -> None:
    row = await link.until(link.add("true", stdout=pattern), "ended")
    assert row.events == ["gone"]
    assert row.end["execed"] is False
    assert row.end["reason"] == f"output: {pattern!r} leads out of the run folder"


async def test_output_goes_where_the_pattern_says(host: Host, link: MemoryLink) -> None:
    key = Key(3, 2, 4)
    row = link.add("sh", "-c", "echo hi", key=key, stdout="%h-%j-%a-%t-%%-%x", stderr="e%t")
    await link.until(row, "ended")
    folder = host.run_dir / "jobs" / "3"
    assert {path.name for path in folder.iterdir()} == {"h1-3-2-4-%-%x", "e4"}


async def test_a_task_sees_exactly_the_environment_it_was_promised(
    host: Host, link: MemoryLink
) -> None:
    await link.until(link.add("env", env={"COLOUR": "blue", "LANG": "C"}), "ended")
    seen = dict(line.split("=", 1) for line in host.output().splitlines())
    assert seen.pop("PATH")
    assert seen.pop("HOME")
    assert seen == {
        "USER": own_user(),
        "LANG": "C",
        "COLOUR": "blue",
        "XCE_JOB_ID": "1",
        "XCE_ATTEMPT": "1",
        "XCE_TASK_INDEX": "0",
        "XCE_HOST": "h1",
        "XCE_CPUS": "1",
        "XCE_MEM_MIB": "64",
        "XCE_RUN_DIR": str(host.run_dir / "jobs" / "1"),
    }


async def test_a_task_starts_in_its_run_folder(host: Host, link: MemoryLink) -> None:
    await link.until(link.add("pwd"), "ended")
    assert host.output() == f"{host.run_dir}/jobs/1\n"


async def test_a_task_outlives_its_worker_and_the_next_one_adopts_it(
    host: Host, link: MemoryLink
) -> None:
    row = await link.until(link.add(*SLEEP), "running")
    pid = (await host.keeper()).tasks[0].pid
    await host.kill_worker()
    assert is_alive(pid)
    link.is_up = False
    host.start_worker()
    while not link.is_up:
        await asyncio.sleep(0.01)
    assert row.state == "running"
    assert is_alive(pid)
    link.stop(row)
    await link.until(row, "ended")
    assert row.events == ["up", "gone"]


async def test_an_end_without_a_worker_is_reported_by_the_next_with_its_true_exit_code(
    host: Host, link: MemoryLink
) -> None:
    go = host.run_dir / "go"
    row = link.add("sh", "-c", f"until test -e {go}; do sleep 0.01; done; exit 42")
    await link.until(row, "running")
    await host.kill_worker()
    go.touch()
    await host.until_kept(lambda view: view.tasks[0].state == "exited")
    host.start_worker()
    await link.until(row, "ended")
    assert row.end["exit_code"] == 42


async def test_a_claim_whose_answer_was_lost_is_started_once(host: Host, link: MemoryLink) -> None:
    while not link.is_up:
        await asyncio.sleep(0.01)
    link.cut = "answer"
    row = link.add("sh", "-c", "echo started")
    while row.state == "assigned":
        await asyncio.sleep(0.01)
    assert row.state == "starting"
    link.cut = ""
    link.bell.set()
    await link.until(row, "ended")
    assert row.events == ["up", "gone"]
    assert host.output() == "started\n"


async def test_a_worker_that_died_after_its_claim_starts_the_task_when_it_is_back(
    host: Host, link: MemoryLink
) -> None:
    await host.kill_worker()
    row = link.add("sh", "-c", "echo started")
    row.state = "starting"
    host.start_worker()
    await link.until(row, "ended")
    assert host.output() == "started\n"


async def test_a_stop_of_a_claimed_task_that_never_forked_is_answered(
    host: Host, link: MemoryLink
) -> None:
    await host.kill_worker()
    row = link.add("true")
    row.state = "stopping"
    host.start_worker()
    await link.until(row, "ended")
    assert row.end["execed"] is False
    assert row.end["lost"] is False


@pytest.mark.parametrize("cut", ["call", "answer"])
async def test_while_the_link_is_down_reports_wait_and_are_delivered_once(
    host: Host, link: MemoryLink, cut: str
) -> None:
    go = host.run_dir / "go"
    program = f"until test -e {go}; do sleep 0.01; done; exit $XCE_TASK_INDEX"
    rows = [link.add("sh", "-c", program) for _ in range(3)]
    for row in rows:
        await link.until(row, "running")
    link.cut = cut  # type: ignore[assignment]
    go.touch()
    await host.until_kept(lambda view: all(task.state == "exited" for task in view.tasks))
    link.cut = ""
    link.bell.set()
    for row in rows:
        await link.until(row, "ended")
    await host.until_kept(lambda view: not view.tasks)
    assert [row.end["exit_code"] for row in rows] == [0, 1, 2]
    assert all(row.events == ["up", "gone"] for row in rows)


async def test_what_no_row_wants_is_stopped_before_the_host_is_cleared(
    host: Host, link: MemoryLink
) -> None:
    row = await link.until(link.add("sh", "-c", "trap 'exit 3' TERM; sleep 1000 & wait"), "running")
    pid = (await host.keeper()).tasks[0].pid
    await host.kill_worker()
    row.state = "ended"
    link.is_up = False
    host.start_worker()
    while not link.is_up:
        await asyncio.sleep(0.01)
    assert not is_alive(pid)
    await host.until_kept(lambda view: not view.tasks)
    assert row.old_news[-1]["event"] == "gone"


async def test_29_nothing_starts_while_something_lives_that_nobody_wants(
    host: Host, link: MemoryLink
) -> None:
    program = "trap '' TERM; echo ready; while :; do sleep 0.02; done"
    old = await link.until(link.add("sh", "-c", program), "running")
    while not host.output():
        await asyncio.sleep(0.01)
    pid = (await host.keeper()).tasks[0].pid
    await host.kill_worker()
    old.state = "ended"
    new = link.add("sh", "-c", f"kill -0 {pid} && exit 1 || exit 0", key=Key(1, 2, 0))
    host.start_worker()
    # Its own grace of the fence's stop is long gone by then; the keeper's record has 5 s.
    async with asyncio.timeout(15):
        await link.until(new, "ended")
    assert new.end["exit_code"] == 0
    assert not is_alive(pid)


async def test_the_database_is_told_what_the_keeper_counts_its_fence_with(
    host: Host, link: MemoryLink
) -> None:
    link.heartbeat_s = 0.02
    link.bell.set()
    async with asyncio.timeout(5):
        while link.told_fence_s != 300.0:
            await asyncio.sleep(0.01)
        link.fence_s = 86_400.0
        while link.told_fence_s != 86_400.0:
            await asyncio.sleep(0.01)
    view = await host.keeper()
    os.kill(view.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        while (await host.until_kept(lambda _: True)).pid == view.pid:
            await asyncio.sleep(0.01)


async def test_a_worker_whose_incarnation_is_over_registers_again(
    host: Host, link: MemoryLink
) -> None:
    row = await link.until(link.add(*SLEEP), "running")
    before = link.incarnation
    link.incarnation += 1
    link.stop(row)
    await link.until(row, "ended")
    assert link.incarnation == before + 2


async def test_what_runs_is_told_in_full_once_and_kept_on_its_id_alone(
    host: Host, link: MemoryLink
) -> None:
    kept = await link.until(link.add(*SLEEP), "running")
    await link.until(link.add(*SLEEP), "running")
    assert link.asked_in_full == [True] + [False] * (link.fetches - 1)
    link.stop(kept)
    await link.until(kept, "ended")
    assert [row.events for row in link.rows.values()] == [["up", "gone"], ["up"]]


async def test_what_runs_and_was_never_told_is_asked_for_in_full(
    host: Host, link: MemoryLink
) -> None:
    row = await link.until(link.add(*SLEEP), "running")
    link.unknown = {99}
    before = len(link.asked_in_full)
    link.bell.set()
    async with asyncio.timeout(10):
        while True not in link.asked_in_full[before:]:
            await asyncio.sleep(0.01)
    link.unknown = set()
    await link.until(link.add(*SLEEP), "running")
    assert row.events == ["up"]


async def test_attempts_of_one_index_do_not_disturb_each_other(
    host: Host, link: MemoryLink
) -> None:
    first = await link.until(link.add(*SLEEP, key=Key(1, 1, 0)), "running")
    link.stop(first)
    await link.until(first, "ended")
    second = link.add("sh", "-c", "exit 5", key=Key(1, 2, 0))
    await link.until(second, "ended")
    assert second.end["exit_code"] == 5


async def test_the_fence_is_counted_from_the_sending_of_the_last_exchange(
    host: Host, link: MemoryLink
) -> None:
    row = link.add("sh", "-c", "trap 'exit 9' TERM; sleep 1000 & wait")
    await link.until(row, "running")
    keeping = link.add(*SLEEP)
    keeping.fence = "keep"
    await link.until(keeping, "running")
    link.fence_s = 0.05
    link.bell.set()
    await link.until(row, "ended")
    assert row.end["exit_code"] == 9
    assert row.end["reason"] == "stopped by the fence of its host"
    assert row.end["lost"] is True
    assert keeping.state == "running"


async def test_the_sockets_folder_may_have_a_long_name(tmp_path: Path, link: MemoryLink) -> None:
    from tests.worker.conftest import shut_down

    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    host = Host(folder, link)
    host.start_worker()
    await link.until(link.add("true"), "ended")
    await host.kill_worker()
    await shut_down(folder)


async def test_26_only_an_exchange_that_the_controller_counts_from_renews_the_fence(
    host: Host, link: MemoryLink
) -> None:
    await link.until(link.add(*SLEEP), "running")
    link.is_heartbeat = False
    counted = (await host.keeper()).fence
    # The keeper takes orders in their order: a renewal would have come before this start.
    await link.until(link.add(*SLEEP), "running")
    assert (await host.keeper()).fence.deadline_boottime_ns == counted.deadline_boottime_ns
    link.is_heartbeat = True
    await link.until(link.add(*SLEEP), "running")
    assert (await host.keeper()).fence.deadline_boottime_ns > counted.deadline_boottime_ns


async def test_7_a_worker_whose_loop_hangs_falls_silent(host: Host, link: MemoryLink) -> None:
    link.heartbeat_s = 0.02
    link.bell.set()
    # By itself, at the new pace: four exchanges in less than one of the old intervals.
    reached = link.fetches + 4
    async with asyncio.timeout(4):
        while link.fetches < reached:
            await asyncio.sleep(0.01)
    link.hangs = True
    link.moved.clear()
    link.add("true")
    await link.moved.wait()
    told = link.fetches
    # Silence has no event to wait for. This loop's timers fire in their order: between ten of ours
    # one of the worker's with the same interval would have fired, however slow the machine is.
    for _ in range(10):
        await asyncio.sleep(link.heartbeat_s)
    assert link.fetches == told


async def test_while_a_restored_database_waits_nothing_is_started_stopped_or_told(
    host: Host, link: MemoryLink
) -> None:
    wanted = await link.until(link.add(*SLEEP), "running")
    unknown = await link.until(link.add(*SLEEP), "running")
    before = await host.keeper()
    await host.kill_worker()
    unknown.state = "ended"
    link.heartbeat_s = 0.02
    link.is_paused = True
    host.start_worker()
    fetched = link.fetches + 5
    async with asyncio.timeout(10):
        while link.fetches < fetched:
            await asyncio.sleep(0.01)
    after = await host.keeper()
    assert [task.pid for task in after.tasks if not task.stopping] == [
        task.pid for task in before.tasks
    ]
    assert unknown.old_news == []
    link.is_paused = False
    link.bell.set()
    async with asyncio.timeout(10):
        await host.until_kept(lambda view: len(view.tasks) == 1)
    assert wanted.state == "running"


async def test_a_task_that_the_kernel_killed_for_its_memory_says_so(
    host: Host, link: MemoryLink, tmp_path: Path
) -> None:
    """The group is a stand-in: no memory controller of cgroup v2 can be had on this machine."""
    group = tmp_path / "task"
    group.mkdir()
    (group / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    (group / "memory.events").write_text("oom 1\noom_kill 3\n")
    (group / "memory.peak").write_text(f"{64 * 1024 * 1024}\n")
    row = await link.until(link.add(*SLEEP), "running")
    view = await host.keeper()
    await host.kill_worker()
    os.kill(view.pid, signal.SIGKILL)
    record = host.run_dir / "records" / "1.1.0.json"
    record.write_text(record.read_text().replace('"cgroup":"', f'"cgroup":"{group}'))
    os.kill(view.tasks[0].pid, signal.SIGKILL)
    host.start_worker()
    await link.until(row, "ended")
    assert (row.end["reason"], row.end["mem_peak_mib"]) == ("out_of_memory", 64)
