"""Resize requests: ask, list, show, wait for, cancel."""

from typing import Any

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.answering import answered, page, resize_answered
from app.api.asking import Asked, Query, body_of, caller_facts, id_of, if_match_of
from app.api.next import resize_of
from app.api.problems import not_found
from app.api.schema import doc
from app.api.services import Services, accepted
from app.api.terms import resize_terms
from app.db.accounts import Caller
from app.db.calls import Answer
from app.db.errors import translated
from app.db.jobs import is_visible
from app.db.resizes import (
    CancelCall,
    OpenFilter,
    ResizeCall,
    ResizeFilter,
    list_open_resizes,
    list_resizes,
    resizes_by_id,
)
from app.runtime.stopping import wait_for
from app.wire.pages import Page
from app.wire.resizes import CancelAsk, OpenState, RequestKind, RequestState, Resize, ResizeAsk

FILTERS = ("all", "kind", "state", "cursor", "limit")
OPEN_FILTERS = ("kind", "state", "cursor", "limit")

#: The longest wait of one call; whoever wants to wait longer asks again.
WAIT_MAX_S = 60.0


@post(
    "/v1/jobs/{job_id:str}/resizes",
    opt=doc("Ask to grow or shrink a running job", gives=Resize, status=202, body=ResizeAsk),
)
async def ask_resize(
    request: Asked,
    job_id: FromPath[str],
    believed_caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    Query(request)
    number = id_of(job_id, "job")
    ask, sha256 = await body_of(request, ResizeAsk)
    facts = caller_facts(request, believed_caller, f"/v1/jobs/{number}/resizes", sha256)
    call = ResizeCall(job_id=number, if_match=if_match_of(request), **facts, **resize_terms(ask))
    return _answered(*await services.resizes.ask(call))


@get(
    "/v1/jobs/{job_id:str}/resizes",
    opt=doc("List a job's requests", gives=Page[Resize], query=FILTERS),
)
async def show_resizes(
    request: Asked,
    job_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    query = Query(request, *FILTERS)
    limit = query.limit()
    wanted = ResizeFilter(
        job_id=id_of(job_id, "job"),
        is_all=query.flag("all"),
        kinds=query.choices("kind", RequestKind),
        states=query.choices("state", RequestState),
    )
    with translated():
        async with services.pool.connection() as conn:
            if not await is_visible(conn, wanted.job_id, sees_only=caller.sees_only):
                raise not_found("job")
            resizes = await list_resizes(
                conn, wanted, made=resize_of, after=query.cursor(), limit=limit + 1
            )
    return page(resizes, limit, lambda resize: str(resize.id))


@get(
    "/v1/resizes",
    opt=doc("List the open requests of all jobs", gives=Page[Resize], query=OPEN_FILTERS),
)
async def show_open_resizes(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    query = Query(request, *OPEN_FILTERS)
    limit, after = query.limit(), query.cursor()
    wanted = OpenFilter(
        user_id=caller.sees_only,
        kinds=query.choices("kind", RequestKind),
        states=query.choices("state", OpenState),
    )
    with translated():
        async with services.pool.connection() as conn:
            resizes = await list_open_resizes(
                conn, wanted, made=resize_of, after=after, limit=limit + 1
            )
    return page(resizes, limit, lambda resize: str(resize.id))


@get("/v1/resizes/{request_id:str}", opt=doc("Show a request", gives=Resize))
async def show_resize(
    request: Asked,
    request_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    Query(request)
    number = id_of(request_id, "request")
    return answered(await _shown(services, caller, number))


@get(
    "/v1/resizes/{request_id:str}/wait",
    opt=doc("Show a request once it is final", gives=Resize, query=("timeout_s",)),
)
async def wait_for_resize(
    request: Asked,
    request_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    timeout_s = Query(request, "timeout_s").seconds("timeout_s", most=WAIT_MAX_S)
    number = id_of(request_id, "request")
    found = await _shown(services, caller, number)
    if found.finished_at is None:
        with services.feed.awaited(number) as final:
            # Looked at again: it may have become final before anybody waited for it.
            found = await _shown(services, caller, number)
            if found.finished_at is None:
                await wait_for(final, timeout_s=timeout_s)
                found = await _shown(services, caller, number)
    return answered(found)


@post(
    "/v1/resizes/{request_id:str}/cancel",
    opt=doc("Take a request back, or some of its tasks", gives=Resize, body=CancelAsk),
)
async def cancel_resize(
    request: Asked,
    request_id: FromPath[str],
    believed_caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    Query(request)
    number = id_of(request_id, "request")
    ask, sha256 = await body_of(request, CancelAsk)
    path = f"/v1/resizes/{number}/cancel"
    facts: dict[str, Any] = caller_facts(request, believed_caller, path, sha256)
    call = CancelCall(request_id=number, count=ask.count, **facts)
    return _answered(*await services.cancels.ask(call))


async def _shown(services: Services, caller: Caller, request_id: int) -> Resize:
    with translated():
        async with services.pool.connection() as conn:
            found = await resizes_by_id(
                conn, [request_id], made=resize_of, sees_only=caller.sees_only
            )
    if request_id not in found:
        raise not_found("request")
    return found[request_id]


def _answered(answer: Answer, resize: Resize | None) -> Response[bytes]:
    accepted(answer)
    if resize is None:
        raise not_found("request")
    return resize_answered(resize, answer)


HANDLERS = [
    ask_resize,
    show_resizes,
    show_open_resizes,
    show_resize,
    wait_for_resize,
    cancel_resize,
]
