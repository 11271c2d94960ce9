"""The worker's line to its keeper: start one where there is none, ask, and hear its bell."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import msgspec

SOCKET = "keeper.sock"

ANSWER_LIMIT_S = 10.0
"""Past it the keeper hangs and is ended: tasks and exit codes outlive it, a successor is quick."""

SLOW_VERBS_S: dict[str, float | None] = {"spawn": 30.0, "shutdown": None}
"""The same for those that wait for tasks: a child is at most 20 s on its way to exec."""

LOCK = "keeper.lock"

START_LIMIT_S = 40.0
"""Longer than a new keeper waits for the lock of a dead one."""

_ROOT = str(Path(__file__).resolve().parents[2])

_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""Some builds of Python do not find themselves without it."""

# Isolated and without site-packages: quick, small, and nothing in the worker's surroundings can
# change what runs. Appended, so that our own folder hides no module of the standard library.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]);"
    " from app.keeper.__main__ import main; sys.exit(main(sys.argv[2:]))"
)


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task may use at most; 0 is no limit. They count only where the host has cgroups."""

    cpus: int = 0
    mem_mib: int = 0


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to run. `env` is the whole environment; outputs and `cwd` are opened as the user.

    `uid` without `gid` is refused. An output that is a link is refused. Not in here: what survives
    a restart of the keeper is in its record.
    """

    job_id: int
    attempt: int
    index: int
    argv: list[str]
    env: dict[str, str]
    cwd: str
    fence: Literal["stop", "keep"]
    grace_s: float
    task_id: int | str | None = None
    stdout: str | None = None
    stderr: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: list[int] = []
    limits: TaskLimits = TaskLimits()


class StartFailure(msgspec.Struct, frozen=True):
    """Why a program never ran.

    `stage` is one of fork, start, record, cgroup, cwd, user, output, fence, exec.
    """

    stage: str
    errno: int
    detail: str


class ExitEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended; its whole tree is gone.

    `lost`: nobody saw the end. `execed`: the program did run. `reaped`: code, CPU and memory were
    seen by the task's own keeper; CPU is that of the main process, of orphans, and of all that
    these waited for; memory is the largest single process. Where the task has a cgroup, CPU and
    (with its controller) memory are the whole tree's, whoever saw the end.
    """

    exit_code: int | None
    signal: int | None
    reaped: bool
    lost: bool
    execed: bool
    failure: StartFailure | None
    stopped: bool
    killed_by_fence: bool
    out_of_memory: bool = False
    cpu_used_us: int | None
    mem_peak_mib: int | None
    started_at_unix_ms: int
    started_at_monotonic_ns: int
    ended_at_unix_ms: int
    ended_at_monotonic_ns: int


class KeptTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the keeper has it. `exit` is set once `state` is `exited`."""

    job_id: int
    attempt: int
    index: int
    task_id: int | str | None
    state: Literal["starting", "running", "draining", "exited"]
    argv0: str
    fence: str
    grace_s: float
    pid: int
    start_ticks: int
    boot_id: str
    made_at_unix_ms: int
    exec_at_monotonic_ns: int | None
    stopping: bool
    adopted: bool
    exit: ExitEvidence | None

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.job_id, self.attempt, self.index)


class FenceView(msgspec.Struct, frozen=True):
    """The keeper's fence; `renewed` is False when the exchange was older than the last one."""

    is_open: bool
    sent_at_boottime_ns: int
    deadline_boottime_ns: int
    renewed: bool = False


class KeeperView(msgspec.Struct, frozen=True):
    """All that a keeper knows."""

    protocol: int
    pid: int
    fence: FenceView
    tasks: list[KeptTask]


class Spawned(msgspec.Struct, frozen=True):
    """A program that runs."""

    pid: int
    start_ticks: int
    exec_at_monotonic_ns: int


class KeeperEvent(msgspec.Struct, frozen=True):
    """A ring of the bell: `started`, `exited` (with the task) or `fenced`."""

    event: str
    job_id: int | None = None
    attempt: int | None = None
    index: int | None = None
    task: KeptTask | None = None


class KeeperLostError(Exception):
    """The keeper is gone, or hung and was ended; connect_or_start makes another."""


class KeeperRefusedError(Exception):
    """A typed refusal, which changed nothing."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class TaskExistsError(KeeperRefusedError):
    """A record of this task was made before: it runs, or it ran."""


class SpawnFailedError(KeeperRefusedError):
    """The program did not run."""

    def __init__(self, failure: StartFailure) -> None:
        super().__init__("failed", f"{failure.stage}: {failure.detail}")
        self.failure = failure


class _Line(msgspec.Struct, frozen=True):
    """The part that all lines of a keeper have."""

    id: int | None = None
    event: str | None = None
    ok: bool = True
    code: str = ""
    detail: str = ""
    stage: str = ""
    errno: int = 0


_line_decoder = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()


class KeeperClient(asyncio.Protocol):
    """One connection. Calls may overlap; every one raises KeeperLostError once the keeper is gone.

    `changed` is set at every event and at the keeper's death; whoever waits for it clears it.
    """

    def __init__(
        self, run_dir: Path, on_event: Callable[[KeeperEvent], None] | None = None
    ) -> None:
        self._run_dir = run_dir
        self.changed = asyncio.Event()
        self.lost = asyncio.Event()
        self._on_event = on_event
        self._transport: asyncio.Transport | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._received = bytearray()

    @classmethod
    async def connect_or_start(
        cls, run_dir: Path, on_event: Callable[[KeeperEvent], None] | None = None
    ) -> "KeeperClient":
        """A line to the keeper of `run_dir`, started if none answers there."""
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with asyncio.timeout(START_LIMIT_S):
            while True:
                with contextlib.suppress(KeeperLostError):
                    return await (await cls.connect(run_dir, on_event)).answering()
                await start_keeper(run_dir)

    @classmethod
    async def connect(
        cls, run_dir: Path, on_event: Callable[[KeeperEvent], None] | None = None
    ) -> "KeeperClient":
        """A line to a keeper that lives; KeeperLostError when there is none."""
        # By way of a descriptor, as the path of a socket must not exceed 107 bytes.
        folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _, client = await asyncio.get_running_loop().create_unix_connection(
                lambda: cls(run_dir, on_event), f"/proc/self/fd/{folder}/{SOCKET}"
            )
            return client
        except (FileNotFoundError, ConnectionError) as error:
            raise KeeperLostError(f"no keeper serves {run_dir}") from error
        finally:
            os.close(folder)

    async def answering(self) -> Self:
        """Only an answer proves a keeper: the socket of a dying one still connects."""
        try:
            await self.list()
        except BaseException:
            self.close()
            raise
        return self

    async def spawn(self, spec: TaskSpec) -> Spawned:
        """Returns after exec. Raises TaskExistsError, SpawnFailedError."""
        answer = await self._ask("spawn", msgspec.to_builtins(spec))
        return msgspec.json.decode(answer, type=Spawned)

    async def stop(self, job_id: int, attempt: int, index: int, grace_s: float) -> None:
        """TERM now, KILL after the grace; the end is told by an event. Refused: `unknown_task`."""
        await self._ask("stop", _key(job_id, attempt, index) | {"grace_s": grace_s})

    async def list(self) -> KeeperView:
        return msgspec.json.decode(await self._ask("list", {}), type=KeeperView)

    async def forget(self, job_id: int, attempt: int, index: int) -> None:
        """Drop an ended task's files. Refused: `not_exited`; an unknown task is no error."""
        await self._ask("forget", _key(job_id, attempt, index))

    async def renew(self, fence_s: float, sent_at_boottime_ns: int) -> FenceView:
        """Count the fence from the sending of an exchange that the database answered."""
        exchange: dict[str, object] = {
            "fence_s": fence_s,
            "sent_at_boottime_ns": sent_at_boottime_ns,
        }
        return msgspec.json.decode(await self._ask("renew", exchange), type=FenceView)

    async def shutdown(self, *, stop_all: bool = False, grace_s: float | None = None) -> None:
        """End the keeper; returns when it is about to exit. Refused: `tasks_live`.

        With `stop_all` tasks are stopped first, each with its own grace, but at most `grace_s`.
        """
        await self._ask("shutdown", {"stop_all": stop_all, "grace_s": grace_s})

    def close(self) -> None:
        """Hang up. Keeper and tasks go on."""
        if self._transport is not None:
            self._transport.close()

    async def _ask(self, verb: str, fields: dict[str, object]) -> bytes:
        if self._transport is None or self.lost.is_set():
            raise KeeperLostError("the keeper is gone")
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._transport.write(_encoder.encode({"id": number, "do": verb, **fields}) + b"\n")
        try:
            async with asyncio.timeout(SLOW_VERBS_S.get(verb, ANSWER_LIMIT_S)):
                return await answer
        except TimeoutError:
            self._transport.abort()
            _kill_keeper(self._run_dir)
            raise KeeperLostError("it does not answer, and was killed") from None
        finally:
            self._waiting.pop(number, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\n" in data:
            *lines, self._received = self._received.split(b"\n")
            for line in lines:
                self._take(bytes(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.changed.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(KeeperLostError("the keeper is gone"))

    def _take(self, text: bytes) -> None:
        line = _line_decoder.decode(text)
        if line.event is not None:
            self.changed.set()
            if self._on_event is not None:
                self._on_event(msgspec.json.decode(text, type=KeeperEvent))
            return
        answer = self._waiting.get(line.id or 0)
        if answer is None or answer.done():
            return
        if line.ok:
            answer.set_result(text)
        else:
            answer.set_exception(_refusal(line))


def _kill_keeper(run_dir: Path) -> None:
    """End the keeper that holds the lock of a folder, by the pid it wrote there."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((run_dir / LOCK).read_text())
        pidfd = os.pidfd_open(pid)
        try:
            # Its number may have gone to a stranger.
            if Path(f"/proc/{pid}/comm").read_text() == "xce-keeper\n":
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


async def start_keeper(run_dir: Path) -> None:
    """Returns when a keeper serves `run_dir`, this one or another that was quicker."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, _ROOT, str(run_dir)]
    log_fd = os.open(run_dir / "keeper.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(log_fd, "ab") as log:
        # Not asyncio's: it takes ten times as long. What it starts detaches itself and lets this
        # process end. The rest of the environment stays behind: it may hold the worker's secrets.
        starter = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            start_new_session=True,
        )
    try:
        await _ended(starter.pid)
    finally:
        if starter.poll() is None:
            starter.kill()
            starter.wait()
    if starter.returncode not in (0, 3):
        raise KeeperLostError(f"the keeper did not start, see {run_dir}/keeper.log")


async def _ended(pid: int) -> None:
    """Wait for a child without taking its exit code."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    pidfd = os.pidfd_open(pid)
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _key(job_id: int, attempt: int, index: int) -> dict[str, object]:
    return {"job_id": job_id, "attempt": attempt, "index": index}


def _refusal(line: _Line) -> KeeperRefusedError:
    if line.code == "exists":
        return TaskExistsError(line.code, line.detail)
    if line.code == "failed":
        return SpawnFailedError(StartFailure(line.stage, line.errno, line.detail))
    return KeeperRefusedError(line.code, line.detail)
