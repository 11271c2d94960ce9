"""The REST API as one ASGI application."""

from functools import cache
from importlib.metadata import version
from typing import Any

from litestar import Litestar
from litestar.di import Provide

from app.api import health, hosts, jobs, pages, reports, resizes, tokens, usage
from app.api import settings as setting_routes
from app.api.auth import believed_caller, caller
from app.api.draining import drained
from app.api.metrics import measured
from app.api.problems import HANDLERS as PROBLEMS
from app.api.schema import document
from app.api.services import ApiSettings, Services

__all__ = ["ApiSettings", "create_app"]

DOCUMENTED = [
    *jobs.HANDLERS,
    *resizes.HANDLERS,
    *hosts.HANDLERS,
    *reports.HANDLERS,
    *setting_routes.HANDLERS,
    *tokens.HANDLERS,
    *usage.HANDLERS,
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
        lifespan=[services.lifespan],
        middleware=[drained, measured],
        exception_handlers=PROBLEMS,
        request_max_body_size=settings.body_bytes_max,
        openapi_config=None,
        logging_config=None,
    )


@cache
def _openapi() -> dict[str, Any]:
    return document(DOCUMENTED, version("xce"))
