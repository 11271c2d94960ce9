"""The worker: converges one host on what the database wants; its tasks outlive it."""

import asyncio
import os
import socket
from collections.abc import Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from app.daemons.run_folder import folder_id, lock_run_dir
from app.daemons.schema import fits
from app.db.worker_link import WorkerLink
from app.runtime.logs import logger
from app.runtime.process import forbid_dumps
from app.runtime.settings import Settings
from app.runtime.stopping import stopping_event, until
from app.worker.certificate import ensure_certificate, fingerprint, server_context
from app.worker.converge import Converger
from app.worker.launch import Launcher
from app.worker.link import Exchange, Link
from app.worker.observe import Processes
from app.worker.outputs import Trimmer
from app.worker.port import Port, Purposes, listen
from app.worker.serve_output import OutputService
from app.worker.sweep import sweep_daily, sweep_sizes
from app.worker.tickets import Door, Ticket, join_address, split_address

LISTEN = "127.0.0.1:0"
#: Each may come to hang on a file server; the threads start when they are needed.
FILE_THREADS = 4
EVERYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class WorkerOptions:
    """What `xce worker` was told; `as_starter` lets jobs of a root worker run as root.

    `limit_cpus` lets no task use more CPU than it has asked for, where the host has cgroups.
    Controllers visit the port at `advertise` (HOST or HOST:PORT), else where it listens.
    """

    run_dir: Path
    as_starter: bool = False
    api_url: str | None = None
    limit_cpus: bool = False
    listen: str = LISTEN
    advertise: str | None = None


def serve(settings: Settings, options: WorkerOptions) -> None:
    """Work until SIGTERM or SIGINT. Raises AnotherWorkerError, PortError, CertificateError."""
    options.run_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    lock = lock_run_dir(options.run_dir)
    try:
        forbid_dumps()
        asyncio.run(_serve(settings, options))
    finally:
        os.close(lock)


async def _serve(settings: Settings, options: WorkerOptions) -> None:
    link = WorkerLink(settings.database_url)
    try:
        stopping = stopping_event()
        if await fits(settings.database_url, stopping):
            await work(link, options, stopping=stopping)
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
    certificate = ensure_certificate(options.run_dir)
    listening = listen(options.listen)
    door = Door(advertised(options, listening), fingerprint(certificate))
    exchange = Exchange(link, version=_version(), folder=folder_id(options.run_dir), door=door)
    converger = Converger(exchange, processes, launcher)
    threads = ThreadPoolExecutor(FILE_THREADS, "files")
    output = OutputService(launcher.jobs, processes, threads)

    async def redeem(sha256: bytes) -> Ticket | None:
        terms = converger.terms
        return await exchange.redeem(terms.incarnation, sha256) if terms else None

    purposes = Purposes(redeem, {"output": output.serve})
    logger().info("worker_started", run_dir=str(options.run_dir), port=door.address)
    try:
        await until(
            stopping,
            processes.run(),
            converger.run(),
            *_sweeps(converger, launcher.jobs, threads),
            Port(listening, server_context(certificate), purposes).run(),
        )
    finally:
        listening.close()
        threads.shutdown(wait=False, cancel_futures=True)
        await processes.close()
    logger().info("worker_stopped")


def _sweeps(
    converger: Converger, jobs: Path, threads: Executor
) -> tuple[Coroutine[Any, Any, None], ...]:
    return (
        sweep_daily(jobs, keep_days=converger.keep_days, open_jobs=converger.open_jobs),
        sweep_sizes(Trimmer(jobs), converger.written, kept=converger.kept_sizes, threads=threads),
    )


def advertised(options: WorkerOptions, listening: socket.socket) -> str:
    """The address that controllers are told."""
    host, port = listening.getsockname()[:2]
    if options.advertise is None:
        return join_address(socket.gethostname() if host in EVERYWHERE else host, port)
    try:
        return join_address(*split_address(options.advertise))
    except ValueError:
        return join_address(options.advertise, port)


def _version() -> str:
    try:
        return version("xce")
    except PackageNotFoundError:
        return "unknown"
