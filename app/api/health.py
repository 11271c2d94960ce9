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
from app.db.statements import statement

READY_S = 2.0


class Health(Struct, frozen=True):
    """`ok`, or the call is refused."""

    status: str


@get("/healthz", opt=doc("Whether the process lives", gives=Health, is_open=True))
async def healthz() -> Response[bytes]:
    return answered(Health("ok"))


@get("/readyz", opt=doc("Whether the database answers", gives=Health, is_open=True))
async def readyz(services: NamedDependency[Services]) -> Response[bytes]:
    try:
        async with asyncio.timeout(READY_S):
            is_ready = await _is_migrated(services)
    except TimeoutError:
        raise Unavailable("no answer from the database") from None
    if not is_ready:
        raise Refusal("unavailable", "the database has no schema yet; run `xce migrate`")
    return answered(Health("ok"))


@get("/metrics", opt=doc("Prometheus metrics", gives=None, is_open=True))
async def metrics() -> Response[bytes]:
    return Response(exposition(), headers={"Content-Type": CONTENT_TYPE})


async def _is_migrated(services: Services) -> bool:
    with translated():
        async with services.pool.connection() as conn:
            cursor = await conn.execute(statement("api_is_ready"))
            row = await cursor.fetchone()
            return bool(row and row[0])


HANDLERS = [healthz, readyz, metrics]
