"""Every refusal of the API: one table from code to status, one place that writes the answer."""

from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from app.api.draining import ClientGone
from app.api.metrics import REFUSED
from app.db.errors import DatabaseError, Unavailable
from app.runtime.logs import logger
from app.wire.encoding import encode
from app.wire.problem import Problem, members

MEDIA_TYPE = "application/problem+json"

#: code: (status, title). The code is what programs may rely on.
CODES: dict[str, tuple[int, str]] = {
    "malformed": (400, "The body is not JSON"),
    "not_http": (400, "Not HTTP"),
    "unauthenticated": (401, "No valid token"),
    "not_allowed": (403, "Not allowed"),
    "project_not_allowed": (403, "Not a project of yours"),
    "not_found": (404, "Not found"),
    "output_gone": (404, "The output is gone"),
    "method_not_allowed": (405, "No such method here"),
    "not_resizable": (409, "A serial job cannot be resized"),
    "above_max": (409, "Above the job's maximum"),
    "below_min": (409, "Below the job's minimum"),
    "head_task": (409, "The head task stays"),
    "task_leaving": (409, "The task is leaving already"),
    "too_slow": (408, "Too slow"),
    "nothing_to_release": (409, "Nothing to release"),
    "job_not_running": (409, "The job does not run"),
    "job_ended": (409, "The job has ended"),
    "too_late": (409, "Too late"),
    "drain_first": (409, "Drain the host first"),
    "stale_generation": (412, "The allocation has changed"),
    "too_large": (413, "The body is too large"),
    "invalid": (422, "Not valid"),
    "unknown_member": (422, "Unknown member"),
    "unknown_task": (422, "Unknown task"),
    "host_not_in_allocation": (422, "The job is not on that host"),
    "never_fits": (422, "No set of hosts could ever fit it"),
    "os_user_refused": (422, "The OS user is refused"),
    "idempotency_key_reused": (422, "The key was used with another body"),
    "too_many": (429, "Too many"),
    "head_too_large": (431, "The headers are too large"),
    "internal": (500, "A fault of ours"),
    "unavailable": (503, "Unavailable"),
}
BY_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}
DETAILS = {
    "not_found": "there is nothing at this address; /schema lists what there is",
    "method_not_allowed": "this address does not take that method; see the header Allow",
    "too_large": "a body may have 1 MiB at most; put the rest into a file that the job reads",
    "internal": "this is a fault of xce; its log says more",
}
RETRY = {"Retry-After": "1"}


class Refusal(Exception):
    """What a handler answers instead of a resource; `figures` become members of the problem."""

    def __init__(self, code: str, detail: str, **figures: Any) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.figures = figures


def not_found(what: str = "row") -> Refusal:
    """The one answer for unknown, foreign and malformed ids, so that nobody learns which it was."""
    return Refusal("not_found", f"there is no such {what} of yours; check the id")


def problem(
    code: str, detail: str, figures: dict[str, Any], headers: dict[str, str] | None = None
) -> Response[bytes]:
    """The answer to a refused call."""
    status, title = CODES.get(code, CODES["internal"])
    REFUSED.labels(code).inc()
    told = Problem(code=code, title=title, status=status, detail=detail)
    return Response(
        encode(members(told, figures)),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={**(RETRY if status == 503 else {}), **(headers or {})},
    )


def on_refusal(_: Request[Any, Any, Any], refusal: Refusal) -> Response[bytes]:
    headers = {}
    if refusal.code == "unauthenticated":
        headers["WWW-Authenticate"] = 'Bearer realm="xce"'
    if "retry_after_s" in refusal.figures:
        headers["Retry-After"] = str(refusal.figures["retry_after_s"])
    return problem(refusal.code, refusal.detail, refusal.figures, headers)


def on_departure(_: Request[Any, Any, Any], __: ClientGone) -> Response[bytes]:
    """Nobody hears it; it is no fault of ours, and counts as none."""
    return Response(b"", status_code=400)


def on_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework refuses: an unknown route, a method, a body that is too large."""
    code = BY_STATUS.get(error.status_code)
    if code is None and error.status_code < 500:
        return problem("invalid", error.detail, {})
    if code is None:
        return on_fault(request, error)
    return problem(code, DETAILS[code], {}, dict(error.headers or {}))


def on_database_error(request: Request[Any, Any, Any], error: DatabaseError) -> Response[bytes]:
    """A database that is away passes; anything else that it says here is a fault of ours."""
    if not isinstance(error, Unavailable):
        return on_fault(request, error)
    logger().warning("database_unavailable", path=request.url.path, detail=str(error))
    detail = (
        "the database did not answer; what you asked for may have happened: "
        "send the same again with the same Idempotency-Key"
    )
    return problem("unavailable", detail, {})


def on_fault(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Never a traceback to the client: it goes to the log."""
    logger().error("fault", method=request.method, path=request.url.path, exc_info=error)
    return problem("internal", DETAILS["internal"], {})


HANDLERS: ExceptionHandlersMap = {
    Refusal: on_refusal,
    ClientGone: on_departure,
    HTTPException: on_http_exception,
    DatabaseError: on_database_error,
    Exception: on_fault,
}
