"""Hosts: everybody may look; operators add, change, drain, resume, vouch for and remove them."""

import asyncio
import re
from typing import LiteralString, get_args

from litestar import Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.answering import answered, page, replay_header
from app.api.asking import Asked, Query, body_of, caller_facts
from app.api.auth import check_operator
from app.api.problems import not_found
from app.api.schema import doc
from app.api.services import Services
from app.api.terms import invalid
from app.db.accounts import Caller
from app.db.errors import translated
from app.db.hosts import (
    HostCall,
    PutCall,
    RetireCall,
    WishCall,
    host_named,
    jobs_to_shrink,
    list_hosts,
    login_of,
)
from app.db.resizes import ResizeCall
from app.db.statements import statement
from app.wire.fields import HostName
from app.wire.hosts import Host, HostDown, HostDrain, HostPut, HostState
from app.wire.jobs import Nothing
from app.wire.pages import Page

PATH = "/v1/hosts"
NAME = re.compile(get_args(HostName)[1].pattern)


@get(PATH, opt=doc("List hosts", gives=Page[Host], query=("state", "cursor", "limit")))
async def show_hosts(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
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
    Query(request)
    return answered(await _host(services, name))


@put(
    f"{PATH}/{{name:str}}",
    opt=doc(
        "Add a host (201, joining), or give one another size and other labels (200)",
        gives=Host,
        body=HostPut,
        told="A new host's login gets its password by `xce host add NAME`, over the database. "
        "A size below what is used or held is refused as `drain_first`.",
    ),
)
async def put_host(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    check_operator(caller)
    Query(request)
    size, sha256 = await body_of(request, HostPut)
    if not NAME.search(name):
        raise invalid("name", "a host's name has letters, digits, dots and dashes, 63 at most")
    with translated():
        login = await login_of(services.pool, name)
    facts = caller_facts(request, caller, f"{PATH}/{name}", sha256)
    call = PutCall(name=name, login=login, size=size, **facts)
    return await _changed(services, statement("put_host"), call)


@delete(
    f"{PATH}/{{name:str}}",
    opt=doc(
        "Remove a host that is down, for good",
        gives=None,
        status=204,
        told="Drain it first; one that is lost has to be vouched for with `down`.",
    ),
)
async def remove_host(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[None]:
    check_operator(caller)
    Query(request)
    _, sha256 = await body_of(request, Nothing)
    _check_name(name)
    call = HostCall(name=name, **caller_facts(request, caller, f"{PATH}/{name}", sha256))
    answer = await services.commit(statement("remove_host"), call)
    return Response(None, status_code=answer.status, headers=replay_header(answer))


@post(
    f"{PATH}/{{name:str}}/down",
    opt=doc(
        "Vouch that a lost host is off: its tasks end as lost",
        gives=Host,
        status=202,
        body=HostDown,
    ),
)
async def retire_host(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    check_operator(caller)
    Query(request)
    ask, sha256 = await body_of(request, HostDown)
    _check_name(name)
    facts = caller_facts(request, caller, f"{PATH}/{name}/down", sha256)
    call = RetireCall(name=name, confirm_dead=ask.confirm_dead, **facts)
    return await _changed(services, statement("retire_host"), call)


@post(
    f"{PATH}/{{name:str}}/drain",
    opt=doc(
        "Let a host empty itself: nothing new starts there",
        gives=Host,
        status=202,
        body=HostDrain,
        told="With `shrink` each job that has other tasks enough is asked to leave it.",
    ),
)
async def drain_host(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    check_operator(caller)
    Query(request)
    ask, sha256 = await body_of(request, HostDrain)
    answer = await _wish(request, (name, "drain", sha256), caller, services)
    if ask.shrink:
        await _shrink_off(request, name, caller, services, sha256)
    return answer


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
    check_operator(caller)
    Query(request)
    _, sha256 = await body_of(request, Nothing)
    return await _wish(request, (name, "resume", sha256), caller, services)


async def _shrink_off(
    request: Asked, name: str, caller: Caller, services: Services, sha256: str
) -> None:
    """Ask the jobs on a host to leave it. What a job's own terms refuse stays, as in any drain."""
    async with services.lent() as conn:
        jobs = await jobs_to_shrink(conn, name)
    calls = [
        ResizeCall(
            job_id=job,
            if_match=None,
            kind="shrink",
            hosts=[name],
            at_once=True,
            **caller_facts(request, caller, f"/v1/jobs/{job}/resizes", sha256),
        )
        for job in jobs
    ]
    await asyncio.gather(*(services.resizes.ask(call) for call in calls))


async def _wish(
    request: Asked, call: tuple[str, str, str], caller: Caller, services: Services
) -> Response[bytes]:
    """`call` is the host's name, the wish and the body's digest."""
    name, wish, sha256 = call
    _check_name(name)
    facts = caller_facts(request, caller, f"{PATH}/{name}/{wish}", sha256)
    return await _changed(services, statement("wish_host"), WishCall(name=name, wish=wish, **facts))


async def _changed(services: Services, query: LiteralString, call: HostCall) -> Response[bytes]:
    """The host after the call."""
    answer = await services.commit(query, call)
    host = await _host(services, call.name)
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


HANDLERS = [
    show_hosts,
    show_host,
    put_host,
    remove_host,
    drain_host,
    resume_host,
    retire_host,
]
