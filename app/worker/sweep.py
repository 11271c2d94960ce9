"""Removes the run folders of jobs that ended long ago, and the oldest part of what is too large."""

import asyncio
import math
import shutil
from collections.abc import Callable, Iterable, Set
from concurrent.futures import Executor
from pathlib import Path

from app.runtime.clock import now
from app.runtime.logs import logger
from app.runtime.stopping import wait_for
from app.worker.outputs import Trimmer
from app.worker.written import KeptSizes, Written

EVERY_S = 86_400.0
FIRST_AFTER_S = 60.0
SIZES_EVERY_S = 10.0
#: Many tasks that end soon after each other are one look.
SIZES_PAUSE_S = 1.0
MIB = 2**20


async def sweep_daily(
    jobs: Path, *, keep_days: Callable[[], float], open_jobs: Callable[[], Set[int]]
) -> None:
    """For ever; what is being removed does not hold up the worker's turns."""
    await asyncio.sleep(FIRST_AFTER_S)
    while True:
        old = stale_folders(jobs, open_jobs(), before_s=now().timestamp() - keep_days() * 86_400)
        for folder in old:
            await asyncio.to_thread(_remove, folder)
        if old:
            logger().info("swept", jobs=[folder.name for folder in old])
        await asyncio.sleep(EVERY_S)


def stale_folders(jobs: Path, open_jobs: Set[int], *, before_s: float) -> list[Path]:
    """Run folders of no open job in which nothing was written since `before_s` (Unix seconds)."""
    if not jobs.is_dir():
        return []
    return sorted(
        folder
        for folder in jobs.iterdir()
        if folder.name.isdecimal()
        and int(folder.name) not in open_jobs
        and _written_at_s(folder) < before_s
    )


def _written_at_s(folder: Path) -> float:
    """Infinity for a folder that cannot be read just now: its owner may change it meanwhile."""
    # One level is enough: output lies there, and a job that still writes deeper is open.
    try:
        times = [folder.lstat().st_mtime]
        times += [path.lstat().st_mtime for path in folder.iterdir()]
    except OSError:
        return math.inf
    return max(times)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, onerror=_log_left)


def _log_left(_call: object, path: str, failure: tuple[object, BaseException, object]) -> None:
    logger().warning("not_swept", path=path, detail=str(failure[1]))


async def sweep_sizes(
    trimmer: Trimmer, written: Written, *, kept: Callable[[], KeptSizes], threads: Executor
) -> None:
    """For ever; a file server that hangs holds up a thread, never the worker's turns."""
    loop = asyncio.get_running_loop()
    while True:
        await wait_for(written.news, timeout_s=SIZES_EVERY_S)
        ended, running, sizes = written.take_ended(), written.open, kept()
        if ended or running:
            await loop.run_in_executor(threads, _trim, trimmer, ended, sizes.ended_mib)
            await loop.run_in_executor(threads, _trim, trimmer, running, sizes.running_mib)
        await asyncio.sleep(SIZES_PAUSE_S)


def _trim(trimmer: Trimmer, names: Iterable[str], keep_mib: float) -> None:
    for name in sorted(names):
        if trimmer.trim(name, keep_bytes=int(keep_mib * MIB)):
            logger().info("output_trimmed", name=name, kept_mib=keep_mib)
