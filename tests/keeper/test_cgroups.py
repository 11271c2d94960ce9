"""Tasks in cgroups of the kernel here: membership, ends and CPU; its limits need controllers."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.worker.keeper_client import KeptTask, SpawnFailedError
from tests.keeper.host import LIMIT_S, PATH, Host, lives

STARTER = """
import asyncio, sys
from pathlib import Path
from app.worker.keeper_client import start_keeper
Path(sys.argv[2], "cgroup.procs").write_text("0")
asyncio.run(start_keeper(Path(sys.argv[1])))
"""

# Nothing of this process tells whose it is: no parent, session, mark or memory.
HIDE = "setsid env -i sh -c 'trap \"\" TERM; echo $$ > hidden; sleep 60; sleep 60' &"


class GroupHost(Host):
    """Its keeper is started within a group that was delegated to it."""

    def __init__(self, folder: Path, base: Path) -> None:
        super().__init__(folder)
        self.base = base

    async def connect(self) -> None:
        self.run_dir.mkdir(exist_ok=True)
        # As a service manager does it: once there are groups below, a process must be in a leaf.
        leaf = self.base / "keeper"
        starter = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", STARTER, str(self.run_dir)),
            str(leaf if leaf.exists() else self.base),
            env={"PATH": PATH, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert await starter.wait() == 0
        await super().connect()

    def groups(self) -> list[Path]:
        return sorted(self.base.glob("task-*"))

    async def without_groups(self) -> None:
        """The kernel may let go of a group a moment after its last process."""
        async with asyncio.timeout(LIMIT_S):
            while self.groups():
                await asyncio.sleep(0.005)

    def log(self) -> str:
        return (self.run_dir / "keeper.log").read_text()


def hierarchy() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split()[4])
    return None


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A group of our own, marked as delegated. As the kernel's, it is no folder to be deleted."""
    mounted = hierarchy()
    if mounted is None:
        pytest.skip("no cgroup v2 is mounted here")
    made = mounted / f"xce-test-{os.getpid()}-{tmp_path.name}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        os.setxattr(made, "user.delegate", b"1")
        (made / "cgroup.kill").stat()
    except OSError as error:
        made.rmdir()
        pytest.skip(f"the kernel's cgroups are too old: {error.strerror}")
    return made


@pytest_asyncio.fixture
async def host(tmp_path: Path, base: Path) -> AsyncIterator[GroupHost]:
    made = GroupHost(tmp_path, base)
    try:
        await made.connect()
        await made.renew()
        yield made
        await made.close()
    finally:
        (base / "cgroup.kill").write_text("1")
        for folder in [*base.glob("*/"), base]:
            await _remove(folder)


async def _remove(folder: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                await asyncio.sleep(0.005)


def group_of(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line for line in lines if line.startswith("0::")).rsplit("/", 1)[1]


def is_exited(task: KeptTask) -> bool:
    return task.state == "exited"


async def test_each_task_has_a_group_while_it_lives(host: GroupHost) -> None:
    first = await host.spawn("sleep", "60")
    second = await host.spawn("sleep", "60", index=1)
    keeper_pid = (await host.client.list()).pid
    assert group_of(keeper_pid) == "keeper"
    assert group_of(first.pid).startswith("task-7.1.0.")
    assert group_of(second.pid).startswith("task-7.1.1.")
    assert f"cgroup v2: in {host.base}" in host.log()
    await host.stop(5)
    await host.ended()
    async with asyncio.timeout(LIMIT_S):
        while len(host.groups()) > 1:
            await asyncio.sleep(0.005)
    assert lives(second.pid)


async def test_nothing_of_a_task_outlives_it_whatever_it_hides(host: GroupHost) -> None:
    """Two other tasks run, so that without groups nobody could say whose the hidden one is."""
    others = [await host.spawn("sleep", "60", index=index) for index in (1, 2)]
    await host.shell(HIDE + " while [ ! -s hidden ]; do sleep 0.01; done", grace_s=0.2)
    hidden = int(await host.written("hidden"))
    ending = await host.ended()
    assert (ending.exit_code, ending.reaped) == (0, True)
    assert not lives(hidden)
    assert all(lives(other.pid) for other in others)


async def test_a_task_is_charged_until_its_hidden_process_ends(host: GroupHost) -> None:
    await host.spawn("sleep", "60", index=1)
    await host.spawn("sleep", "60", index=2)
    await host.shell(HIDE + " while [ ! -s hidden ]; do sleep 0.01; done", grace_s=600)
    hidden = int(await host.written("hidden"))
    await host.until(lambda task: task.state == "draining")
    os.kill(hidden, 9)
    # Its child sleeps on in the same group, known to nobody else.
    assert (await host.task()).state == "draining"
    await host.stop(0)
    await host.ended()


async def test_a_task_that_forks_all_the_time_is_killed_at_once(host: GroupHost) -> None:
    script = (
        "import os, sys\nprint('up', file=open('up', 'w'))\nwhile True: os.fork() and os._exit(0)"
    )
    await host.spawn(sys.executable, "-c", script, grace_s=0)
    await host.written("up")
    await host.stop(0)
    await host.ended()
    await host.without_groups()


async def test_cpu_of_processes_that_nobody_waited_for_counts(host: GroupHost) -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    ignoring = (
        f"import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"subprocess.Popen([sys.executable, '-c', {spin!r}]).wait()"
    )
    await host.spawn(sys.executable, "-c", ignoring)
    ending = await host.ended()
    assert ending.cpu_used_us is not None
    assert ending.cpu_used_us >= 300_000
    assert not ending.out_of_memory


async def test_a_program_that_cannot_run_leaves_no_group(host: GroupHost) -> None:
    with pytest.raises(SpawnFailedError, match="exec"):
        await host.spawn("/no/such/program")
    await host.without_groups()


async def test_a_group_that_is_in_use_is_no_place_for_a_second_copy(host: GroupHost) -> None:
    spawned = await host.spawn("sleep", "60")
    (host.run_dir / "records" / "7.1.0.json").rename(host.work / "kept.json")
    await host.kill_keeper()
    await host.connect()
    with pytest.raises(SpawnFailedError, match="cgroup: "):
        await host.spawn("sleep", "60")
    assert lives(spawned.pid)


async def test_a_successor_finds_the_groups_again(host: GroupHost) -> None:
    await host.shell("trap 'exit 5' TERM; echo up > up; while :; do sleep 0.01; done", index=0)
    await host.spawn("sleep", "60", index=1)
    await host.shell(HIDE + " sleep 60", index=2)
    await host.written("up")
    hidden = int(await host.written("hidden"))
    await host.kill_keeper()
    (host.base / "task-9.9.9.0").mkdir()  # Another keeper's.
    await host.connect()
    keeper_pid = (await host.client.list()).pid
    assert group_of(keeper_pid) == "keeper"
    await host.stop(5)
    await host.stop(0.2, index=2)
    ending = await host.ended()
    assert (ending.lost, ending.reaped, ending.exit_code) == (False, True, 5)
    assert ending.cpu_used_us
    await host.ended(index=2)
    assert not lives(hidden)
    assert [path.name[:8] for path in host.groups()] == ["task-7.1", "task-9.9"]


async def test_an_empty_group_of_a_start_that_never_was_is_swept(host: GroupHost) -> None:
    await host.spawn("true")
    await host.ended()
    await host.without_groups()
    await host.spawn("sleep", "60", index=1)
    suffix = host.groups()[0].name.rsplit(".", 1)[1]
    (host.base / f"task-7.1.9.{suffix}").mkdir()
    await host.kill_keeper()
    await host.connect()
    assert [path.name for path in host.groups()] == [f"task-7.1.1.{suffix}"]
