"""The output of a task, from its worker to the caller."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import get_args

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.asking import Asked, Query, id_of, invalid_query
from app.api.output_feed import OutputFeed, Wanted
from app.api.problems import not_found
from app.api.relaying import Relayed
from app.api.schema import doc
from app.api.services import Services
from app.db.accounts import Caller
from app.worker.tickets import Stream

BYTES_MAX = 16 * 1024 * 1024
INT_MAX = 2**31 - 1
OFFSET_MAX = 2**62
QUERY = ("stream", "offset", "follow", "limit", "attempt")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


@get(
    "/v1/jobs/{job_id:str}/tasks/{index:str}/output",
    opt=doc("What a task has written, or writes", gives=bytes, query=QUERY),
)
async def show_output(
    request: Asked,
    job_id: FromPath[str],
    index: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    query = Query(request, *QUERY)
    number = id_of(job_id, "job")
    if not _INDEX.fullmatch(index) or int(index) > INT_MAX:
        raise not_found("task")
    follow = query.flag("follow")
    limit = query.number("limit", 1, OFFSET_MAX if follow else BYTES_MAX)
    wanted = Wanted(
        token_id=caller.token_id,
        sees_only=caller.sees_only,
        job_id=number,
        index=int(index),
        attempt=query.number("attempt", 1, INT_MAX),
        stream=_stream(query),
        offset=query.number("offset", -OFFSET_MAX, OFFSET_MAX) or 0,
        limit=BYTES_MAX if limit is None and not follow else limit,
        follow=follow,
    )
    return services.relays.answer(caller.user_id, lambda: _relayed(services, wanted))


@asynccontextmanager
async def _relayed(services: Services, wanted: Wanted) -> AsyncIterator[Relayed]:
    feed = OutputFeed(services.lent, wanted)
    try:
        begun = await feed.begin()
        headers = {
            "Content-Type": "application/octet-stream",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
            "XCE-Output-Attempt": str(begun.attempt),
            "XCE-Output-Offset": str(begun.start),
            "XCE-Output-Size": str(begun.size),
        }
        if begun.length is not None:
            headers["Content-Length"] = str(begun.length)
        yield Relayed(headers, feed.parts())
    finally:
        await feed.close()


def _stream(query: Query) -> Stream:
    chosen = query.text("stream")
    for known in get_args(Stream):
        if chosen in (None, known):
            stream: Stream = known
            return stream
    raise invalid_query("stream", f"say one of {', '.join(get_args(Stream))}")


HANDLERS = [show_output]
