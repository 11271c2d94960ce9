"""Whether this controller lives, whether it can serve, and what Prometheus is told."""

import asyncio

from litestar import Response, get
from litestar.di import NamedDependency
from msgspec import Struct

from app.api.answering import answered
from app.api.metrics import CONTENT_TYPE, exposition
from app.api.problems import Refusal
from app.api.schema import doc
from app.api.services import Services
from app.db.errors import Unavailable, translated
from app.db.feed import Holder, feed_holder
from app.db.statements import statement

READY_S = 2.0


class Health(Struct, frozen=True, omit_defaults=True):
    """`ok`, or the call is refused; and what old transaction holds the feed of events back."""

    status: str
    feed_held_by: Holder | None = None


@get("/healthz", opt=doc("Whether the process lives", gives=Health, is_open=True))
async def healthz() -> Response[bytes]:
    return answered(Health("ok"))


@get("/readyz", opt=doc("Whether the database answers", gives=Health, is_open=True))
async def readyz(services: NamedDependency[Services]) -> Response[bytes]:
    try:
        async with asyncio.timeout(READY_S):
            is_ready, holder = await _look(services)
    except TimeoutError:
        raise Unavailable("no answer from the database") from None
    if not is_ready:
        raise Refusal("unavailable", "the database has no schema yet; run `xce migrate`")
    return answered(Health("ok", holder))


@get("/metrics", opt=doc("Prometheus metrics", gives=None, is_open=True))
async def metrics() -> Response[bytes]:
    return Response(exposition(), headers={"Content-Type": CONTENT_TYPE})


async def _look(services: Services) -> tuple[bool, Holder | None]:
    with translated():
        async with services.pool.connection() as conn:
            cursor = await conn.execute(statement("api_is_ready"))
            row = await cursor.fetchone()
            is_ready = bool(row and row[0])
            return is_ready, await feed_holder(conn) if is_ready else None


HANDLERS = [healthz, readyz, metrics]
