"""The REST API as one ASGI application."""

from functools import cache
from importlib.metadata import version
from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from app.api import events, health, hosts, jobs, output, pages, reports, resizes, tokens, usage
from app.api import settings as setting_routes
from app.api.auth import believed_caller, caller
from app.api.draining import drained
from app.api.metrics import measured
from app.api.problems import HANDLERS as PROBLEMS
from app.api.schema import document
from app.api.services import ApiSettings, Services

__all__ = ["ApiSettings", "create_app", "end_streams"]

SERVICES = "services"
DOCUMENTED = [
    *jobs.HANDLERS,
    *resizes.HANDLERS,
    *hosts.HANDLERS,
    *reports.HANDLERS,
    *setting_routes.HANDLERS,
    *tokens.HANDLERS,
    *usage.HANDLERS,
    *events.HANDLERS,
    *output.HANDLERS,
    *health.HANDLERS,
]


def create_app(settings: ApiSettings) -> Litestar:
    """The application; it opens its connections when it starts and closes them when it stops."""
    services = Services(settings)
    return Litestar(
        route_handlers=[*DOCUMENTED, *pages.HANDLERS],
        dependencies={
            "services": Provide(lambda: services, sync_to_thread=False),
            "caller": Provide(caller),
            "believed_caller": Provide(believed_caller),
            "openapi_document": Provide(_openapi, sync_to_thread=False),
        },
        state=State({SERVICES: services}),
        lifespan=[services.lifespan],
        middleware=[drained, measured],
        exception_handlers=PROBLEMS,
        request_max_body_size=settings.body_bytes_max,
        openapi_config=None,
        logging_config=None,
    )


def end_streams(app: Litestar) -> None:
    """Let open streams and waits end: a server that stops would wait for them."""
    services: Services = app.state[SERVICES]
    services.feed.close()
    services.relays.close()


@cache
def _openapi() -> dict[str, Any]:
    return document(DOCUMENTED, version("xce"))
