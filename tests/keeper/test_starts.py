"""What a task finds when it starts, and what is known when it cannot."""

import asyncio
import errno
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from app.worker.keeper_client import SpawnFailedError, StartFailure, TaskExistsError
from tests.keeper.host import PATH, Host, gone, let_anyone_in, parent_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the user")

NOBODY = 65534


async def failure(host: Host, *argv: str, **changes: object) -> StartFailure:
    with pytest.raises(SpawnFailedError) as refused:
        await host.spawn(*argv, **changes)
    return refused.value.failure


async def test_a_program_is_running_when_spawn_returns(host: Host) -> None:
    before_ns = time.monotonic_ns()
    spawned = await host.spawn("sleep", "60")
    task = await host.task()
    assert (task.state, task.pid, task.exit) == ("running", spawned.pid, None)
    assert before_ns < spawned.exec_at_monotonic_ns < time.monotonic_ns()
    assert Path(f"/proc/{spawned.pid}/comm").read_text() == "sleep\n"
    assert os.getsid(spawned.pid) == os.getpgid(spawned.pid) == spawned.pid


async def test_the_environment_is_exactly_what_was_given(host: Host) -> None:
    env = {"PATH": PATH, "XCE_JOB_ID": "7", "ODD": "a=b\n ü", "EMPTY": ""}
    await host.spawn("env", "-0", env=env, stdout="out")
    await host.ended()
    entries = (host.work / "out").read_bytes().decode().removesuffix("\0").split("\0")
    found = dict(entry.split("=", 1) for entry in entries)
    assert found == env


async def test_input_is_empty_and_no_descriptor_is_inherited(host: Host) -> None:
    program = (
        "import os, sys\n"
        "assert sys.stdin.read() == ''\n"
        "folder = '/proc/self/fd/'\n"
        "for fd in os.listdir(folder):\n"
        "    if os.path.exists(folder + fd): print(fd, os.readlink(folder + fd))\n"
    )
    for index in (0, 1):  # By the spare child, and by a fresh one where there is none yet.
        await host.spawn(sys.executable, "-I", "-S", "-c", program, index=index, stdout="out")
        assert (await host.ended(index)).exit_code == 0
        links = dict(line.split(" ", 1) for line in (host.work / "out").read_text().splitlines())
        assert links == {"0": "/dev/null", "1": str(host.work / "out"), "2": "/dev/null"}


async def test_signals_are_at_their_defaults(host: Host) -> None:
    for index in (0, 1):  # By the spare child, and perhaps by a fresh one.
        await host.spawn("cat", "/proc/self/status", index=index, stdout=f"out{index}")
        await host.ended(index)
        lines = (line.split() for line in (host.work / f"out{index}").read_text().splitlines())
        masks = {line[0]: int(line[1], 16) for line in lines if line[0] in MASKS}
        # 32 and 33 are the C library's own; how they were inherited nobody can change.
        assert {name: mask & ~(3 << 31) for name, mask in masks.items()} == dict.fromkeys(MASKS, 0)


async def test_output_is_appended_to_private_files(host: Host) -> None:
    for index in (0, 1):
        await host.shell("echo out; echo err >&2", index=index, stdout="out", stderr="err")
        await host.ended(index)
    await host.shell("echo one; echo two >&2", index=2, stdout="both", stderr="both")
    await host.ended(2)
    assert (host.work / "out").read_text() == "out\nout\n"
    assert (host.work / "err").read_text() == "err\nerr\n"
    assert (host.work / "both").read_text() == "one\ntwo\n"
    assert (host.work / "out").stat().st_mode & 0o777 == 0o600


async def test_a_folder_that_is_not_there_is_a_typed_failure(host: Host) -> None:
    missing = await failure(host, "pwd", cwd=str(host.work / "run"))
    assert (missing.stage, missing.errno) == ("cwd", errno.ENOENT)


async def test_output_follows_no_link(host: Host) -> None:
    (host.work / "target").write_text("")
    (host.work / "link").symlink_to("target")
    told = await failure(host, "echo", "x", stdout="link")
    assert (told.stage, told.errno) == ("output", errno.ELOOP)
    assert (host.work / "target").read_text() == ""


async def test_a_program_that_cannot_run_is_a_typed_failure(host: Host) -> None:
    (host.work / "not-executable").write_text("#!/bin/sh\n")
    (host.work / "not-a-program").write_text("nothing the kernel knows\n")
    (host.work / "not-a-program").chmod(0o755)
    numbers = {
        "no-such-program": errno.ENOENT,
        "./not-executable": errno.EACCES,
        "./missing/program": errno.ENOENT,
        "./not-a-program": errno.ENOEXEC,
    }
    for index, (program, number) in enumerate(numbers.items()):
        told = await failure(host, program, index=index)
        assert (program, told.stage, told.errno) == (program, "exec", number)
        ending = await host.ended(index)
        assert ending.failure == told
        assert not ending.execed
        assert not ending.lost
        assert ending.exit_code is None
        assert ending.signal is None


async def test_output_that_cannot_be_opened_is_a_typed_failure(host: Host) -> None:
    told = await failure(host, "true", stdout="missing/out")
    assert (told.stage, told.errno) == ("output", errno.ENOENT)


async def test_the_path_of_the_task_decides_not_the_keepers(host: Host) -> None:
    program = host.work / "true"
    program.write_text("#!/bin/sh\nexit 33\n")
    program.chmod(0o755)
    await host.spawn("true", env={"PATH": f"/nowhere::{host.work}:{PATH}"})
    assert (await host.ended()).exit_code == 33


async def test_a_second_copy_is_refused(host: Host) -> None:
    first = await host.spawn("sleep", "60")
    with pytest.raises(TaskExistsError):
        await host.spawn("sleep", "60")
    assert (await host.task()).pid == first.pid
    await host.stop(0)
    await host.ended()
    with pytest.raises(TaskExistsError):  # Its end has not been acknowledged yet.
        await host.spawn("true")
    await host.client.forget(7, 1, 0)
    await host.spawn("true")


async def test_a_record_that_the_keeper_does_not_know_still_prevents_a_second_copy(
    host: Host,
) -> None:
    record = host.run_dir / "records" / "7.1.0.json"
    record.write_text("")
    with pytest.raises(TaskExistsError):
        await host.shell("echo ran > ran")
    assert not (host.work / "ran").exists()
    ending = await host.ended()
    assert (ending.lost, ending.execed) == (True, False)


async def test_a_record_holds_neither_arguments_nor_environment(host: Host) -> None:
    secret = "hunter2"
    await host.shell(f"true {secret}; sleep 60", env={"PATH": PATH, "TOKEN": secret})
    for path in host.run_dir.rglob("*"):
        if path.is_file():
            assert secret not in path.read_text()
            assert path.stat().st_mode & 0o077 == 0
    lines = (host.run_dir / "records" / "7.1.0.json").read_text().splitlines()
    first, stat, shim, last = lines
    task = await host.task()
    assert json.loads(first)["argv0"] == "sh"
    assert stat.startswith(f"{task.pid} (")
    assert shim.startswith(f"{parent_of(task.pid)} (xce-shim)")
    assert json.loads(last)["exec_at_monotonic_ns"] == task.exec_at_monotonic_ns


async def test_an_order_too_long_for_a_pipe_is_followed_too(host: Host) -> None:
    env = {"PATH": PATH} | {f"LONG{i}": "x" * 100_000 for i in range(10)}
    await host.shell("echo ${#LONG9}", env=env, stdout="out")
    await host.ended()
    assert (host.work / "out").read_text() == "100000\n"


async def test_many_start_at_once_and_a_dead_spare_is_no_obstacle(host: Host) -> None:
    keeper_pid = (await host.client.list()).pid
    children = Path(f"/proc/{keeper_pid}/task/{keeper_pid}/children")
    while not children.read_text():  # The spare is made when nothing else is to do.
        await asyncio.sleep(0.005)
    spare_pid = int(children.read_text())
    os.kill(spare_pid, signal.SIGKILL)
    await gone(spare_pid)
    for index in range(20):
        await host.shell(f"exit {index}", index=index)
    for index in range(20):
        assert (await host.ended(index)).exit_code == index


MASKS = ("SigBlk:", "SigIgn:", "SigCgt:")


@as_root
async def test_a_task_runs_as_its_user(host: Host) -> None:
    let_anyone_in(host.work)
    run = host.work / "run"
    run.mkdir(mode=0o700)
    os.chown(run, NOBODY, NOBODY)
    user = {"uid": NOBODY, "gid": NOBODY, "groups": [100]}
    await host.shell("id -u; id -G", cwd=str(run), stdout="out", **user)
    await host.ended()
    assert (run / "out").read_text() == f"{NOBODY}\n{NOBODY} 100\n"
    assert (run / "out").stat().st_uid == NOBODY


@as_root
async def test_output_is_opened_with_the_rights_of_the_user(host: Host) -> None:
    (host.work / "ours").write_text("")
    (host.work / "ours").chmod(0o600)
    let_anyone_in(host.work)
    told = await failure(host, "true", stdout="ours", uid=NOBODY, gid=NOBODY)
    assert (told.stage, told.errno) == ("output", errno.EACCES)


async def test_python_is_found_by_its_path(host: Host) -> None:
    await host.spawn(sys.executable, "-c", "raise SystemExit(4)")
    assert (await host.ended()).exit_code == 4
