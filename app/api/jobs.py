"""Jobs: submit, list, show, kill; and their tasks."""

from typing import Any

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.answering import job_answered, opaque, page, unveiled
from app.api.asking import (
    Asked,
    Query,
    body_of,
    caller_facts,
    id_of,
    if_match_of,
    invalid_query,
)
from app.api.problems import not_found
from app.api.schema import doc
from app.api.services import Services, accepted
from app.api.terms import job_body
from app.db.accounts import Caller
from app.db.errors import translated
from app.db.jobs import (
    CommandCall,
    JobFilter,
    SubmitCall,
    TaskFilter,
    is_visible,
    job_in_full,
    jobs_by_id,
    list_jobs,
    list_tasks,
)
from app.db.statements import statement
from app.wire.jobs import Job, JobState, JobSubmit, Nothing, Task, TaskState
from app.wire.pages import Page

PATH = "/v1/jobs"
FILTERS = ("state", "name", "owner", "project", "queue", "cursor", "limit")
TASK_FILTERS = ("all", "state", "host", "cursor", "limit")


def _command_doc(told: str) -> dict[str, Any]:
    return doc(told, gives=Job, status=202, body=Nothing)


@post(PATH, opt=doc("Submit a job", gives=Job, status=201, body=JobSubmit))
async def submit_job(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    Query(request)
    ask, sha256 = await body_of(request, JobSubmit)
    facts = caller_facts(request, caller, PATH, sha256)
    call = SubmitCall(body=job_body(ask), **facts)
    answer = await services.commit(statement("submit_job"), call)
    return job_answered(await _job(services, caller, answer.id), answer)


@get(PATH, opt=doc("List jobs", gives=Page[Job], query=FILTERS))
async def show_jobs(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    query = Query(request, *FILTERS)
    limit = query.limit()
    wanted = JobFilter(
        states=query.choices("state", JobState),
        **{name: query.text(name) for name in ("name", "owner", "project", "queue")},
    )
    with translated():
        async with services.pool.connection() as conn:
            jobs = await list_jobs(
                conn, wanted, sees_only=caller.sees_only, after=query.cursor(), limit=limit + 1
            )
    return page(jobs, limit, lambda job: str(job.id))


@get(f"{PATH}/{{job_id:str}}", opt=doc("Show a job", gives=Job))
async def show_job(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    Query(request)
    return job_answered(await _job(services, caller, id_of(job_id, "job")))


@post(f"{PATH}/{{job_id:str}}/kill", opt=_command_doc("Kill a job"))
async def kill_job(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    return await _command("kill", request, job_id, caller, services)


@post(f"{PATH}/{{job_id:str}}/requeue", opt=_command_doc("Stop a job and run it again"))
async def requeue_job(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    return await _command("requeue", request, job_id, caller, services)


@post(f"{PATH}/{{job_id:str}}/hold", opt=_command_doc("Place nothing new of a job"))
async def hold_job(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    return await _command("hold", request, job_id, caller, services)


@post(f"{PATH}/{{job_id:str}}/release", opt=_command_doc("End the hold of a job"))
async def release_job(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    return await _command("release", request, job_id, caller, services)


async def _command(
    verb: str, request: Asked, job_id: str, caller: Caller, services: Services
) -> Response[bytes]:
    Query(request)
    number = id_of(job_id, "job")
    _, sha256 = await body_of(request, Nothing)
    facts = caller_facts(request, caller, f"{PATH}/{number}/{verb}", sha256)
    call = CommandCall(verb=verb, job_id=number, if_match=if_match_of(request), **facts)
    answer, job = await services.commands.ask(call)
    accepted(answer)
    if job is None:
        raise not_found("job")
    return job_answered(job, answer)


@get(
    f"{PATH}/{{job_id:str}}/tasks",
    opt=doc("List a job's tasks", gives=Page[Task], query=TASK_FILTERS),
)
async def show_tasks(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    query = Query(request, *TASK_FILTERS)
    limit = query.limit()
    wanted = TaskFilter(
        job_id=id_of(job_id, "job"),
        is_all=query.flag("all"),
        states=query.choices("state", TaskState),
        host=query.text("host"),
    )
    after = _task_cursor(query.text("cursor"))
    with translated():
        async with services.pool.connection() as conn:
            if not await is_visible(conn, wanted.job_id, sees_only=caller.sees_only):
                raise not_found("job")
            tasks = await list_tasks(conn, wanted, after=after, limit=limit + 1)
    return page(tasks, limit, lambda task: opaque(f"{task.index} {task.attempt}".encode()))


def _task_cursor(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return (-1, 0)
    try:
        index, attempt = (int(part) for part in unveiled(cursor).split())
    except ValueError:
        raise invalid_query("cursor", "give the `next` of the page before") from None
    if max(abs(index), abs(attempt)) > 2**31 - 1:
        raise invalid_query("cursor", "give the `next` of the page before")
    return (index, attempt)


async def _job(services: Services, caller: Caller, job_id: int) -> Job:
    with translated():
        async with services.pool.connection() as conn:
            found = await jobs_by_id(conn, [job_id], sees_only=caller.sees_only)
            if job_id not in found:
                raise not_found("job")
            return await job_in_full(conn, found[job_id], reader=caller.user_id)


COMMANDS = [kill_job, requeue_job, hold_job, release_job]
HANDLERS = [submit_job, show_jobs, show_job, *COMMANDS, show_tasks]
