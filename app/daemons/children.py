"""Processes that a supervisor starts, starts again when they die, and stops."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RESTART_FIRST_S = 0.1
RESTART_MAX_S = 5.0
#: Who lived for so long is started again at once, as if it had never died before.
STEADY_S = 20.0
LOG_TAIL_CHARS = 2000


@dataclass(frozen=True)
class Program:
    """What to run, and where what it says goes."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path


class Child:
    """One program, kept running until it is stopped."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.deaths = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at_s = 0.0
        self._restart_at_s: float | None = 0.0

    @property
    def pid(self) -> int | None:
        """The process id; None while it waits to be started again."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        with self.program.log.open("ab") as log:
            # Its own session, so that Ctrl-C in the terminal reaches the supervisor alone.
            self._process = subprocess.Popen(
                self.program.command,
                env=dict(self.program.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started_at_s = time.monotonic()
        self._restart_at_s = None

    def tend(self) -> bool:
        """Notice a death, start again when it is time; True when the process id changed."""
        now_s = time.monotonic()
        if self._process is not None:
            if self._process.poll() is None:
                return False
            self._process = None
            self.deaths = 1 if now_s - self._started_at_s > STEADY_S else self.deaths + 1
            pause_s = min(RESTART_FIRST_S * 2 ** (self.deaths - 1), RESTART_MAX_S)
            self._restart_at_s = now_s + pause_s
            return True
        if self._restart_at_s is None or now_s < self._restart_at_s:
            return False
        self.start()
        return True

    def restarts_in_s(self) -> float | None:
        """How long until it is to be started again; None while it runs."""
        if self._restart_at_s is None:
            return None
        return max(0.0, self._restart_at_s - time.monotonic())

    def terminate(self) -> None:
        """Ask it to end, and do not start it again."""
        self._restart_at_s = None
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, until_s: float) -> None:
        """Wait for its end until this monotonic time, then kill it."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log_tail(self) -> str:
        """The last that it said."""
        try:
            return self.program.log.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
        except FileNotFoundError:
            return ""


def stop_all(children: Sequence[Child], patience_s: float) -> None:
    """Stop them together; those that do not end in time are killed."""
    for child in children:
        child.terminate()
    until_s = time.monotonic() + patience_s
    for child in children:
        child.wait(until_s)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        # Without /proc, on macOS.
        return True
