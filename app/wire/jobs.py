"""Jobs and their tasks as REST speaks of them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from app.wire.fields import (
    Amount,
    Argv,
    Count,
    Env,
    Exact,
    ExistingHosts,
    HostNames,
    Label,
    Moment,
    OutputPattern,
    Path,
    Priority,
    Range,
    Seconds,
    SomeHostNames,
    SomeSeconds,
)

JobState = Literal["pending", "running", "stopping", "done", "exited"]
TaskState = Literal["assigned", "starting", "running", "stopping", "ended"]
EndsWhen = Literal["all", "head"]
OnTaskFailure = Literal["ignore", "end_job"]
OnHostLoss = Literal["requeue", "shrink", "exit"]
Fence = Literal["stop", "keep"]


#: A label that a host must carry: this value, one of these, or with none of them any value.
Constraints = Annotated[
    dict[Label, Label | Annotated[list[Label], Meta(max_length=256)]], Meta(max_length=256)
]


class Span(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the whole allocation may lie: at most n tasks a host, or all on one host; one of both."""

    per_host: Count | None = None
    hosts: Literal[1] | None = None


class JobSubmit(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/jobs`. What is not a member here is refused, never ignored."""

    command: Argv
    name: Label | None = None
    head_command: Argv | None = None
    env: Env = {}
    cwd: Path | None = None
    tasks: Count | Range = 1
    min_tasks: Count | None = None
    max_tasks: Count | None = None
    cpus: Amount = 1
    mem_mib: Amount = 0
    gpus: Amount = 0
    span: Literal["any"] | Span = "any"
    existing_hosts: ExistingHosts | None = None
    constraints: Constraints = {}
    hosts: SomeHostNames | None = None
    exclude_hosts: HostNames = []
    queue: Label = "default"
    project: Label = "default"
    priority: Priority = 0
    begin_at: Moment | None = None
    grace_s: Seconds = 10
    start_s: SomeSeconds = 60
    run_limit_s: SomeSeconds | None = None
    on_host_loss: OnHostLoss = "requeue"
    fence: Fence | None = None
    loss_grace_s: Seconds | None = None
    ends_when: EndsWhen | None = None
    on_task_failure: OnTaskFailure = "ignore"
    stdout: OutputPattern | None = None
    stderr: OutputPattern | None = None


class Job(Struct, frozen=True, gc=False):
    """A job. The members after `loss_grace_s` are told when one job is asked for, not in lists."""

    id: int
    name: str | None
    state: JobState
    reason: str | None
    owner: str
    project: str
    queue: str
    tasks: int
    running_tasks: int
    submitted_tasks: int
    min_tasks: int
    max_tasks: int
    generation: int
    attempt: int
    hosts: list[str]
    exit_code: int | None
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    cpus: int
    mem_mib: int
    gpus: int
    span: Any
    existing_hosts: ExistingHosts
    constraints: dict[str, Any]
    exclude_hosts: list[str]
    priority: int
    held: bool
    begin_at: datetime | None
    run_limit_s: Exact | None
    ends_when: EndsWhen
    on_task_failure: OnTaskFailure
    on_host_loss: OnHostLoss
    fence: Fence
    grace_s: Exact
    start_s: Exact
    loss_grace_s: Exact
    command: list[str] | UnsetType = UNSET
    head_command: list[str] | UnsetType | None = UNSET
    cwd: str | UnsetType | None = UNSET
    stdout: str | UnsetType | None = UNSET
    stderr: str | UnsetType | None = UNSET
    #: The owner's eyes only.
    env: dict[str, str] | UnsetType = UNSET


class Task(Struct, frozen=True, gc=False):
    """A task; `how` says how it ended."""

    index: int
    attempt: int
    host: str
    state: TaskState
    how: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    cpu_used_s: Exact | None
    mem_peak_mib: int | None
    request_id: int
    shrink_id: int | None
    assigned_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a POST that takes no members."""
