"""A worker's run folder: who serves it, and what tells it from every other one."""

import fcntl
import os
import secrets
from pathlib import Path


class AnotherWorkerError(Exception):
    """Another worker serves this run folder."""


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
