"""What a host must do next: desired tasks and observed processes in, a list of actions out."""

from collections.abc import Iterator, Mapping, Set
from typing import Literal, NamedTuple

import msgspec

#: An unwanted process whose own grace nobody knows any more gets this long to end.
STRAY_GRACE_S = 10.0

NEVER_FORKED = "never had a process"
NO_RECORD = "its record is gone from the host"


class Key(NamedTuple):
    """One run of one task; an earlier attempt of the same index is another key."""

    job_id: int
    attempt: int
    # The name is the domain's; nobody searches a key as the tuple it is.
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.index}"


class Launch(msgspec.Struct, frozen=True, gc=False):
    """What starting a task needs."""

    command: tuple[str, ...]
    env: dict[str, str]
    host: str
    cpus: int
    mem_mib: int
    gpus: int
    cwd: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    os_user: str | None = None
    owner: str = ""


class Desired(msgspec.Struct, frozen=True, gc=False):
    """A task as the database wants it; `ended` where it has acknowledged the end."""

    job_id: int
    attempt: int
    index: int
    state: Literal["starting", "running", "stopping", "ended"]
    grace_s: float = STRAY_GRACE_S
    fence: Literal["stop", "keep"] = "stop"
    launch: Launch | None = None
    stdout: str | None = None
    stderr: str | None = None
    task_id: int = 0

    @property
    def key(self) -> Key:
        return Key(self.job_id, self.attempt, self.index)


class Observed(msgspec.Struct, frozen=True, gc=False):
    """A task as this host has it; `lost` is a record without a process and without an exit.

    `by_fence`: the keeper ended it because nobody answered. `stop_by_s`, on the clock of `now_s`,
    is when what lives of it will be killed; None until it was told to stop. `seen` is the number
    of the last fetch sent before it was first seen.
    """

    key: Key
    phase: Literal["forked", "live", "ended", "lost"]
    execed: bool = False
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    cpu_used_us: int | None = None
    mem_peak_mib: int | None = None
    grace_s: float | None = None
    stop_by_s: float | None = None
    by_fence: bool = False
    seen: int = 0

    @property
    def is_alive(self) -> bool:
        return self.phase in ("forked", "live")


class Start(msgspec.Struct, frozen=True, gc=False):
    """Give the task its process."""

    task: Desired
    launch: Launch


class Stop(msgspec.Struct, frozen=True, gc=False):
    """End the task's process tree: TERM now, KILL after `grace_s`."""

    key: Key
    grace_s: float


class Report(msgspec.Struct, frozen=True, gc=False):
    """Tell the database what became of a task; repeated until it is acknowledged."""

    job_id: int
    attempt: int
    index: int
    event: Literal["up", "gone"]
    execed: bool = True
    exit_code: int | None = None
    signal: int | None = None
    lost: bool = False
    #: The loss is the host's: what a cut-off host's fence ended.
    by_fence: bool = False
    reason: str | None = None
    cpu_used_us: int | None = None
    mem_peak_mib: int | None = None

    @property
    def key(self) -> Key:
        return Key(self.job_id, self.attempt, self.index)


class Forget(msgspec.Struct, frozen=True, gc=False):
    """The end is acknowledged: its record may go."""

    key: Key


Order = Start | Stop | Forget
Action = Order | Report


def reconcile(
    desired: Mapping[Key, Desired],
    observed: Mapping[Key, Observed],
    *,
    fetched: int,
    now_s: float,
    may_start: bool = True,
) -> list[Action]:
    """The actions that bring this host to what the database wants, ascending by key.

    `fetched` is the number of the fetch that `desired` came from. Asking twice without a change
    answers the same; a Start or Stop that was carried out is not asked for again. `may_start` is
    false until the database was told that nothing lives here without a row (PROTOCOL 29).
    """
    actions: list[Action] = []
    for key in sorted(desired.keys() | observed.keys()):
        task, process = desired.get(key), observed.get(key)
        if task is None:
            assert process is not None
            actions += _on_stray(process, fetched=fetched, now_s=now_s)
        elif process is None:
            actions += _on_missing(task, may_start=may_start)
        else:
            actions += _on_present(task, process, now_s=now_s)
    return actions


def is_clear(rows: Set[Key], observed: Mapping[Key, Observed]) -> bool:
    """Whether everything alive here belongs to one of the open `rows` of the database."""
    return all(key in rows for key, process in observed.items() if process.is_alive)


def open_rows(desired: Mapping[Key, Desired]) -> frozenset[Key]:
    """The tasks that the database has open here."""
    return frozenset(key for key, task in desired.items() if task.state != "ended")


def _on_stray(process: Observed, *, fetched: int, now_s: float) -> Iterator[Action]:
    # An answer that was asked for before the process was seen says nothing about it: the row may
    # have been claimed by that very answer's successor.
    if fetched <= process.seen:
        return
    if process.is_alive:
        grace_s = STRAY_GRACE_S if process.grace_s is None else process.grace_s
        yield from _stop(process, grace_s=grace_s, now_s=now_s)
    else:
        yield _gone(process)


def _on_missing(task: Desired, *, may_start: bool) -> Iterator[Action]:
    match task.state:
        case "starting" if task.launch is not None and may_start:
            yield Start(task, task.launch)
        case "starting" | "ended":
            pass
        case "running":
            yield _without_process(task, execed=True, lost=True, reason=NO_RECORD)
        case "stopping":
            # The child makes its record before exec, so that none proves that nothing ever ran.
            yield _without_process(task, execed=False, lost=False, reason=NEVER_FORKED)


def _on_present(task: Desired, process: Observed, *, now_s: float) -> Iterator[Action]:
    if task.state == "ended":
        if process.is_alive:
            yield from _stop(process, grace_s=task.grace_s, now_s=now_s)
        else:
            yield Forget(task.key)
        return
    if task.state == "starting" and process.execed:
        yield Report(*task.key, "up")
    if not process.is_alive:
        yield _gone(process)
    elif task.state == "stopping":
        yield from _stop(process, grace_s=task.grace_s, now_s=now_s)


def _stop(process: Observed, *, grace_s: float, now_s: float) -> Iterator[Action]:
    # Compared by the moment of the KILL, so that the same order repeated later, by this worker or
    # its successor, never lengthens a grace and only a shorter one is a new order.
    if process.stop_by_s is None or now_s + grace_s < process.stop_by_s:
        yield Stop(process.key, grace_s)


def _gone(process: Observed) -> Report:
    return Report(
        *process.key,
        "gone",
        execed=process.execed,
        exit_code=process.exit_code,
        signal=process.signal,
        # What a cut-off host's fence ended is a loss, not the task's failure (PROTOCOL 23).
        lost=process.phase == "lost" or process.by_fence,
        by_fence=process.by_fence,
        reason=process.reason,
        cpu_used_us=process.cpu_used_us,
        mem_peak_mib=process.mem_peak_mib,
    )


def _without_process(task: Desired, *, execed: bool, lost: bool, reason: str) -> Report:
    return Report(*task.key, "gone", execed=execed, lost=lost, reason=reason)
