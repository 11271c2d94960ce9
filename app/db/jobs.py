"""Jobs and their tasks: what the API reads and asks for."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs
from psycopg.rows import class_row

from app.db.batch import Connection
from app.db.calls import Call
from app.db.reads import selected
from app.db.statements import statement
from app.wire.jobs import Job, Task


class JobBody(Struct, frozen=True, kw_only=True):
    """A submitted job with every default filled in; null is left to the queue or a setting."""

    name: str | None
    command: list[str]
    head_command: list[str] | None
    env: dict[str, str]
    cwd: str | None
    tasks_min: int
    tasks: int
    min_tasks: int
    max_tasks: int
    cpus: int
    mem_mib: int
    gpus: int
    span: Any
    existing_hosts: str | None
    constraints: dict[str, list[str]]
    hosts: list[str] | None
    exclude_hosts: list[str]
    queue: str
    project: str
    priority: int
    begin_at: datetime | None
    run_limit_s: float | None
    grace_s: float
    start_s: float
    on_host_loss: str
    fence: str | None
    loss_grace_s: float | None
    ends_when: str
    on_task_failure: str
    stdout: str | None
    stderr: str | None


class SubmitCall(Call, frozen=True, kw_only=True):
    """Submit a job."""

    body: JobBody


class CommandCall(Call, frozen=True, kw_only=True):
    """Kill, requeue, hold or release a job."""

    verb: str
    job_id: int
    if_match: int | None
    reason: str = "killed"


class JobFilter(Struct, frozen=True):
    """Which jobs a list shows; None lets everything pass."""

    states: list[str] | None = None
    name: str | None = None
    owner: str | None = None
    project: str | None = None
    queue: str | None = None


class TaskFilter(Struct, frozen=True):
    """Which tasks of a job a list shows: those in `states`, else the open ones, or all."""

    job_id: int
    is_all: bool = False
    states: list[str] | None = None
    host: str | None = None


class Launch(Struct, frozen=True):
    """How a job is launched; `env` is None for everybody but its owner."""

    command: list[str]
    head_command: list[str] | None
    cwd: str | None
    stdout: str | None
    stderr: str | None
    env: dict[str, str] | None


async def jobs_by_id(
    conn: Connection, ids: list[int], *, sees_only: int | None = None
) -> dict[int, Job]:
    """The jobs of these ids that the caller may see, without how they are launched."""
    async with conn.cursor(row_factory=class_row(Job)) as cursor:
        await cursor.execute(selected("wanted_ids", "jobs"), {"ids": ids, "user_id": sees_only})
        return {job.id: job async for job in cursor}


async def job_in_full(conn: Connection, job: Job, *, reader: int) -> Job:
    """The job with how it is launched; `env` only where the reader owns it."""
    async with conn.cursor(row_factory=class_row(Launch)) as cursor:
        await cursor.execute(statement("job_launch"), {"job_id": job.id, "user_id": reader})
        launch = await cursor.fetchone()
    if launch is None:
        return job
    told = structs.asdict(launch)
    if launch.env is None:
        del told["env"]
    return structs.replace(job, **told)


async def list_jobs(
    conn: Connection, wanted: JobFilter, *, sees_only: int | None, after: int, limit: int
) -> list[Job]:
    """Jobs in ascending order of id."""
    async with conn.cursor(row_factory=class_row(Job)) as cursor:
        await cursor.execute(
            selected("wanted_jobs", "jobs"),
            {
                "after": after,
                "limit": limit,
                "owner_id": sees_only,
                "user_id": sees_only,
                **structs.asdict(wanted),
            },
        )
        return await cursor.fetchall()


async def is_visible(conn: Connection, job_id: int, *, sees_only: int | None) -> bool:
    """Whether the job exists and the caller may know of it."""
    cursor = await conn.execute(
        statement("job_is_visible"), {"job_id": job_id, "user_id": sees_only}
    )
    return await cursor.fetchone() is not None


async def list_tasks(
    conn: Connection, wanted: TaskFilter, *, after: Sequence[int], limit: int
) -> list[Task]:
    """A job's tasks after (index, attempt)."""
    async with conn.cursor(row_factory=class_row(Task)) as cursor:
        await cursor.execute(
            statement("tasks_of_job"),
            {
                "job_id": wanted.job_id,
                "all": wanted.is_all,
                "states": wanted.states,
                "host": wanted.host,
                "after_index": after[0],
                "after_attempt": after[1],
                "limit": limit,
            },
        )
        return await cursor.fetchall()
