"""What Prometheus is told of the API, in a registry of our own."""

from time import perf_counter

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()
REQUESTS = Counter(
    "xce_api_requests_total",
    "Answered calls.",
    ["method", "route", "status"],
    registry=REGISTRY,
)
SECONDS = Histogram(
    "xce_api_request_seconds",
    "Time to answer a call.",
    ["route"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
    registry=REGISTRY,
)
REFUSED = Counter(
    "xce_api_refusals_total", "Refused calls by their code.", ["code"], registry=REGISTRY
)
BATCH_CALLS = Histogram(
    "xce_api_batch_calls",
    "Calls in one group commit.",
    ["verb"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 250),
    registry=REGISTRY,
)
STREAMS = Gauge("xce_api_streams", "Open streams of events.", registry=REGISTRY)
SLOW_READERS = Counter(
    "xce_api_slow_readers_total", "Streams ended because too much waited.", registry=REGISTRY
)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition() -> bytes:
    """The metrics as Prometheus reads them."""
    return generate_latest(REGISTRY)


def measured(app: ASGIApp) -> ASGIApp:
    """Counts and times every answer of a known route."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        started = perf_counter()
        route = scope.get("path_template") or "unknown"

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                REQUESTS.labels(scope["method"], route, message["status"]).inc()
                SECONDS.labels(route).observe(perf_counter() - started)
            await send(message)

        await app(scope, receive, send_and_count)

    return call
