"""What was: history of jobs and requests, usage and allocation of a job."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.answering import answered, opaque, page, unveiled
from app.api.asking import Asked, Query, id_of, invalid_query
from app.api.problems import not_found
from app.api.schema import doc
from app.api.services import Services
from app.db.accounts import Caller
from app.db.batch import Connection
from app.db.errors import translated
from app.db.jobs import is_visible
from app.db.reports import Place, allocation, history, usage
from app.db.resizes import job_of_request
from app.wire.encoding import decode, encode
from app.wire.pages import Page
from app.wire.reports import Allocation, HistoryItem, Usage


@get(
    "/v1/jobs/{job_id:str}/history",
    opt=doc(
        "What happened to a job, its requests and its tasks",
        gives=Page[HistoryItem],
        query=("cursor", "limit"),
    ),
)
async def show_job_history(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    query = Query(request, "cursor", "limit")
    number = id_of(job_id, "job")
    async with _visible_job(services, caller, number) as conn:
        return await _history(conn, query, number, None)


@get(
    "/v1/resizes/{request_id:str}/history",
    opt=doc("What happened to a request", gives=Page[HistoryItem], query=("cursor", "limit")),
)
async def show_resize_history(
    request: Asked,
    request_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    query = Query(request, "cursor", "limit")
    number = id_of(request_id, "request")
    with translated():
        async with services.pool.connection() as conn:
            job_id = await job_of_request(conn, number, sees_only=caller.sees_only)
            if job_id is None:
                raise not_found("request")
            return await _history(conn, query, job_id, number)


@get("/v1/jobs/{job_id:str}/usage", opt=doc("What a job was given up to now", gives=Usage))
async def show_usage(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    Query(request)
    number = id_of(job_id, "job")
    async with _visible_job(services, caller, number) as conn:
        return answered(await usage(conn, number))


@get(
    "/v1/jobs/{job_id:str}/allocation",
    opt=doc("The tasks a job has, or had at a moment", gives=Allocation, query=("as_of",)),
)
async def show_allocation(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    as_of = Query(request, "as_of").moment("as_of")
    number = id_of(job_id, "job")
    async with _visible_job(services, caller, number) as conn:
        return answered(await allocation(conn, number, as_of=as_of))


@asynccontextmanager
async def _visible_job(
    services: Services, caller: Caller, job_id: int
) -> AsyncIterator[Connection]:
    with translated():
        async with services.pool.connection() as conn:
            if not await is_visible(conn, job_id, sees_only=caller.sees_only):
                raise not_found("job")
            yield conn


async def _history(
    conn: Connection, query: Query, job_id: int, request_id: int | None
) -> Response[bytes]:
    limit = query.limit()
    after = _place(query.text("cursor"))
    found = await history(conn, job_id, request_id=request_id, after=after, limit=limit + 1)
    places = {id(item): place for item, place in found}
    return page([item for item, _ in found], limit, lambda item: opaque(encode(places[id(item)])))


def _place(cursor: str | None) -> Place | None:
    if cursor is None:
        return None
    try:
        place = decode(unveiled(cursor), Place)
    except (ValueError, msgspec.MsgspecError):
        raise invalid_query("cursor", "give the `next` of the page before") from None
    if place.at.tzinfo is None:
        raise invalid_query("cursor", "give the `next` of the page before")
    return place


HANDLERS = [show_job_history, show_resize_history, show_usage, show_allocation]
