"""The controller: API, lease, scheduler and chores in one process and one loop."""

import asyncio
import gc
import os
import secrets
import socket

import uvloop

from app.api.app import ApiSettings, create_app
from app.daemons.api_server import ApiServer, Place, bind
from app.daemons.chores import Chores
from app.daemons.leadership import Leadership
from app.daemons.scheduler import Scheduler
from app.daemons.schema import fits, refuse_misfit
from app.db.doorbell import PLAN, Doorbell, Listener
from app.db.lease import Lease
from app.db.pg_store import PgStore
from app.model import Policy
from app.runtime.logs import configure_logs, logger
from app.runtime.process import forbid_dumps
from app.runtime.settings import Settings
from app.runtime.stopping import stopping_event, until


def main(settings: Settings, place: Place, *, calls_per_s: float) -> None:
    """Serve until SIGTERM or SIGINT. Raises PlaceError."""
    place.check()
    configure_logs("controller", level=settings.log_level)
    forbid_dumps()
    uvloop.run(control(settings, bind(place), place, calls_per_s=calls_per_s))


async def control(
    settings: Settings, listening: socket.socket, place: Place, *, calls_per_s: float
) -> None:
    """Run all parts until one is told to stop; the database may come and go meanwhile."""
    stopping = stopping_event()
    url = settings.database_url
    await refuse_misfit(url)
    doorbell = Doorbell(url)
    listener = Listener(url, [PLAN])
    bell = listener.event(PLAN)
    leadership = Leadership(Lease(url, holder_name()))
    store = PgStore(url, doorbell)
    scheduler = Scheduler(store, leadership, bell, policy=Policy())
    chores = Chores(url, leadership, doorbell)

    def wake() -> bool:
        bell.set()
        return leadership.epoch is not None

    api = ApiSettings(url, scheduler_wake=wake, calls_per_s=calls_per_s)
    server = ApiServer(create_app(api), place)

    async def decide() -> None:
        # Where no database answered yet, the API serves meanwhile and says that it is not ready.
        if await fits(url, stopping):
            await until(stopping, leadership.run(), scheduler.run(), chores.run())

    spare_the_collector()
    logger().info("controller_started", host=place.host, port=listening.getsockname()[1])
    serving = asyncio.create_task(server.run_on(listening))
    try:
        await until(
            stopping,
            listener.run(),
            decide(),
            still_serving(serving),
        )
    finally:
        server.should_exit = True
        await leadership.drop()
        await serving
        await chores.close()
        await store.close()
        await doorbell.close()
    logger().info("controller_stopped")


async def still_serving(serving: asyncio.Task[None]) -> None:
    """Fail when the API ends by itself: better started again than half alive."""
    await asyncio.shield(serving)
    raise RuntimeError("the API server ended")


def spare_the_collector() -> None:
    """What was made so far lives as long as the process: it need not be looked at again."""
    gc.collect()
    gc.freeze()


def holder_name() -> str:
    """Who holds the lease: no two controllers, nor two runs of one, have the same name."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
