"""The worker: converges one host on what the database wants; its tasks outlive it."""

import asyncio
import fcntl
import os
import secrets
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from app.db.worker_link import WorkerLink
from app.runtime.logs import logger
from app.runtime.process import forbid_dumps
from app.runtime.settings import Settings
from app.runtime.stopping import stopping_event, until
from app.worker.converge import Converger
from app.worker.launch import Launcher
from app.worker.link import Exchange, Link
from app.worker.observe import Processes
from app.worker.sweep import sweep_daily


class AnotherWorkerError(Exception):
    """Another worker serves this run folder."""


@dataclass(frozen=True)
class WorkerOptions:
    """What `xce worker` was told; `as_starter` lets jobs of a root worker run as root.

    `limit_cpus` lets no task use more CPU than it has asked for, where the host has cgroups.
    """

    run_dir: Path
    as_starter: bool = False
    api_url: str | None = None
    limit_cpus: bool = False


def serve(settings: Settings, options: WorkerOptions) -> None:
    """Work until SIGTERM or SIGINT. Raises AnotherWorkerError."""
    options.run_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    lock = lock_run_dir(options.run_dir)
    try:
        forbid_dumps()
        asyncio.run(_serve(settings, options))
    finally:
        os.close(lock)


def lock_run_dir(run_dir: Path) -> int:
    """Hold the folder for as long as the descriptor is open.

    Without it a worker that was paused between an answer and a start could start, much later,
    what its successor had started and seen end in the meantime.
    """
    lock = os.open(run_dir / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise AnotherWorkerError(f"another worker serves {run_dir}") from None
    return lock


def folder_id(run_dir: Path) -> str:
    """What tells this run folder from every other one, made when it is first served."""
    path = run_dir / "folder.id"
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        fresh = path.with_suffix(".new")
        fresh.write_text(secrets.token_hex(16) + "\n", "ascii")
        fresh.replace(path)
        return path.read_text("ascii").strip()


async def _serve(settings: Settings, options: WorkerOptions) -> None:
    link = WorkerLink(settings.database_url)
    try:
        await work(link, options, stopping=stopping_event())
    finally:
        await link.close()


async def work(link: Link, options: WorkerOptions, *, stopping: asyncio.Event) -> None:
    """Converge over any link until `stopping`; the keeper and its tasks stay."""
    processes = Processes(options.run_dir)
    launcher = Launcher(
        options.run_dir,
        as_starter=options.as_starter,
        api_url=options.api_url,
        limit_cpus=options.limit_cpus,
    )
    exchange = Exchange(link, version=_version(), folder=folder_id(options.run_dir))
    converger = Converger(exchange, processes, launcher)
    logger().info("worker_started", run_dir=str(options.run_dir))
    try:
        await until(
            stopping,
            processes.run(),
            converger.run(),
            sweep_daily(
                launcher.jobs, keep_days=converger.keep_days, open_jobs=converger.open_jobs
            ),
        )
    finally:
        await processes.close()
    logger().info("worker_stopped")


def _version() -> str:
    try:
        return version("xce")
    except PackageNotFoundError:
        return "unknown"
