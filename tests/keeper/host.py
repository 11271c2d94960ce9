"""A host with a real keeper: start tasks, wait for what happens to them, look at what is left."""

import asyncio
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from app.worker.keeper_client import (
    ExitEvidence,
    KeeperClient,
    KeeperLostError,
    KeptTask,
    Spawned,
    TaskSpec,
)

PATH = "/usr/local/bin:/usr/bin:/bin"

LIMIT_S = 10.0


class Host:
    """One run folder, its keeper, and a client that is connected to it."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "keeper"
        self.work = folder / "work"
        self.work.mkdir()
        self.client: KeeperClient
        self.keeper_pids: set[int] = set()

    async def connect(self) -> None:
        self.client = await KeeperClient.connect_or_start(self.run_dir)
        self.keeper_pids.add((await self.client.list()).pid)

    async def renew(self, fence_s: float = 300, *, ago_s: float = 0) -> bool:
        sent_at_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - round(ago_s * 1e9)
        return (await self.client.renew(fence_s, sent_at_ns)).is_open

    def spec(self, *argv: str, **changes: object) -> TaskSpec:
        fields = {
            "job_id": 7,
            "attempt": 1,
            "index": 0,
            "argv": list(argv),
            "env": {"PATH": PATH},
            "cwd": str(self.work),
            "fence": "stop",
            "grace_s": 5.0,
        }
        return TaskSpec(**(fields | changes))  # type: ignore[arg-type]

    async def spawn(self, *argv: str, **changes: object) -> Spawned:
        return await self.client.spawn(self.spec(*argv, **changes))

    async def shell(self, script: str, **changes: object) -> Spawned:
        return await self.spawn("sh", "-c", script, **changes)

    async def task(self, index: int = 0) -> KeptTask:
        return await self.until(lambda _: True, index)

    async def until(self, holds: Callable[[KeptTask], bool], index: int = 0) -> KeptTask:
        """The task once it is listed and the condition holds; looks again at every ring."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                self.client.changed.clear()
                for task in (await self.client.list()).tasks:
                    if task.key == (7, 1, index) and holds(task):
                        return task
                try:
                    async with asyncio.timeout(0.05):
                        await self.client.changed.wait()
                except TimeoutError:
                    continue

    async def ended(self, index: int = 0) -> ExitEvidence:
        task = await self.until(lambda task: task.state == "exited", index)
        assert task.exit is not None
        return task.exit

    async def stop(self, grace_s: float, index: int = 0) -> None:
        await self.client.stop(7, 1, index, grace_s)

    async def written(self, name: str) -> str:
        """The content of a file in the work folder, once a line is in it."""
        path = self.work / name
        async with asyncio.timeout(LIMIT_S):
            while not (path.exists() and path.read_text().endswith("\n")):
                await asyncio.sleep(0.005)
        return path.read_text()

    async def kill_keeper(self) -> None:
        """-9, and wait until its death is noticed."""
        os.kill((await self.client.list()).pid, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            await self.client.lost.wait()

    async def close(self) -> None:
        """Stop what is left; nothing of it may outlive the test."""
        try:
            if self.client.lost.is_set():
                await self.connect()
            await self.client.shutdown(stop_all=True, grace_s=0)
        except KeeperLostError:
            pass
        self.client.close()
        for pid in self.keeper_pids:
            await gone(pid)


async def gone(pid: int) -> None:
    """Returns when the process has ended; fails when it lives too long."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(LIMIT_S):
            await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def lives(pid: int) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([pidfd], [], [], 0)[0]
    finally:
        os.close(pidfd)


def parent_of(pid: int) -> int:
    """Of a task's main process that is its shim."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def let_anyone_in(folder: Path) -> None:
    """Open the way to a folder for other users; never further up than the tests' own folders."""
    shared = Path(tempfile.gettempdir()).resolve()
    for opened in (folder, *folder.parents):
        if opened.resolve() == shared:
            return
        opened.chmod(0o755)
    raise AssertionError(f"{folder} is not below {shared}")
