"""A worker with a real keeper, over a link in memory."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from app.daemons.worker import WorkerOptions, work
from app.worker.certificate import ensure_certificate
from app.worker.keeper_client import KeeperClient, KeeperLostError, KeeperView
from tests.worker.link import MemoryLink


class Host:
    """One host: a run folder with its keeper, and a worker that can be killed and started."""

    def __init__(self, run_dir: Path, link: MemoryLink) -> None:
        self.run_dir = run_dir
        self.link = link
        self._worker: asyncio.Task[None] | None = None

    def start_worker(self) -> None:
        options = WorkerOptions(self.run_dir, as_starter=True)
        self._worker = asyncio.create_task(work(self.link, options, stopping=asyncio.Event()))

    async def kill_worker(self) -> None:
        """As by a crash: nothing of it goes on, keeper and tasks do."""
        assert self._worker is not None
        self._worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._worker

    async def keeper(self) -> KeeperView:
        client = await KeeperClient.connect(self.run_dir)
        try:
            return await client.list()
        finally:
            client.close()

    async def until_kept(self, is_so: Callable[[KeeperView], bool]) -> KeeperView:
        """Wait until the keeper's list is as told."""
        client = await KeeperClient.connect_or_start(self.run_dir)
        try:
            while not is_so(view := await client.list()):
                client.changed.clear()
                # Forgetting a task rings no bell.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(client.changed.wait(), 0.02)
            return view
        finally:
            client.close()

    def output(self, name: str = "1.1.0.out") -> str:
        return (self.run_dir / "jobs" / "1" / name).read_text()


@pytest.fixture
async def link() -> MemoryLink:
    return MemoryLink()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once for all workers of the tests, because it takes as long as many a test."""
    return ensure_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
async def host(tmp_path: Path, link: MemoryLink, certificate: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path / "run", link)
    made.run_dir.mkdir(mode=0o711)
    shutil.copy(certificate, made.run_dir)
    made.start_worker()
    yield made
    await made.kill_worker()
    await shut_down(made.run_dir)


async def shut_down(run_dir: Path) -> None:
    """End whatever keeper serves the folder, and its tasks."""
    try:
        client = await KeeperClient.connect(run_dir)
    except KeeperLostError:
        client = await KeeperClient.connect_or_start(run_dir)
    keeper_pid = (await client.list()).pid
    await client.shutdown(stop_all=True, grace_s=0)
    await client.lost.wait()
    client.close()
    assert not is_alive(keeper_pid) or await _ends(keeper_pid)


async def _ends(pid: int) -> bool:
    for _ in range(200):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


Killer = Callable[[int], Awaitable[None]]


def own_user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
