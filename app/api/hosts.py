"""Hosts, for operators: list, show, drain, resume."""

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.answering import answered, page, replay_header
from app.api.asking import Asked, Query, body_of, caller_facts
from app.api.auth import check_operator
from app.api.problems import not_found
from app.api.schema import doc
from app.api.services import Services
from app.db.accounts import Caller
from app.db.errors import translated
from app.db.hosts import WishCall, host_named, list_hosts
from app.db.statements import statement
from app.wire.hosts import Host, HostState
from app.wire.jobs import Nothing
from app.wire.pages import Page

PATH = "/v1/hosts"


@get(PATH, opt=doc("List hosts", gives=Page[Host], query=("state", "cursor", "limit")))
async def show_hosts(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    check_operator(caller)
    query = Query(request, "state", "cursor", "limit")
    limit = query.limit()
    states = query.choices("state", HostState)
    with translated():
        async with services.pool.connection() as conn:
            hosts = await list_hosts(conn, states=states, after=query.cursor(), limit=limit + 1)
    return page(hosts, limit, lambda host: str(host.id))


@get(f"{PATH}/{{name:str}}", opt=doc("Show a host", gives=Host))
async def show_host(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    check_operator(caller)
    Query(request)
    return answered(await _host(services, name))


@post(
    f"{PATH}/{{name:str}}/drain",
    opt=doc(
        "Let a host empty itself: nothing new starts there", gives=Host, status=202, body=Nothing
    ),
)
async def drain_host(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    return await _wish(request, name, "drain", caller, services)


@post(
    f"{PATH}/{{name:str}}/resume",
    opt=doc("Use a drained host again", gives=Host, status=202, body=Nothing),
)
async def resume_host(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    return await _wish(request, name, "resume", caller, services)


async def _wish(
    request: Asked, name: str, wish: str, caller: Caller, services: Services
) -> Response[bytes]:
    check_operator(caller)
    Query(request)
    _, sha256 = await body_of(request, Nothing)
    _check_name(name)
    facts = caller_facts(request, caller, f"{PATH}/{name}/{wish}", sha256)
    answer = await services.commit(statement("wish_host"), WishCall(name=name, wish=wish, **facts))
    host = await _host(services, name)
    return answered(host, status=answer.status, headers=replay_header(answer))


async def _host(services: Services, name: str) -> Host:
    _check_name(name)
    with translated():
        async with services.pool.connection() as conn:
            host = await host_named(conn, name)
    if host is None:
        raise not_found("host")
    return host


def _check_name(name: str) -> None:
    # PostgreSQL takes no NUL, and no host has one in its name.
    if "\x00" in name:
        raise not_found("host")


HANDLERS = [show_hosts, show_host, drain_host, resume_host]
