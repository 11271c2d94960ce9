"""Writes what a handler answers: a struct as JSON, with the headers that belong to it."""

import base64
from collections.abc import Sequence
from typing import Any, TypeVar

from litestar import Response
from msgspec import Struct

from app.db.calls import Answer
from app.wire.encoding import encode
from app.wire.jobs import Job
from app.wire.pages import Page
from app.wire.resizes import Resize

Item = TypeVar("Item")
JSON = "application/json"


def answered(
    body: Struct, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response[bytes]:
    """A resource as it is now."""
    return Response(encode(body), status_code=status, media_type=JSON, headers=headers or {})


def job_answered(job: Job, answer: Answer | None = None) -> Response[bytes]:
    """A job; its generation is its ETag."""
    headers = {"ETag": f'"{job.generation}"'}
    if answer is None:
        return answered(job, headers=headers)
    headers |= {"Location": f"/v1/jobs/{job.id}"} | replay_header(answer)
    return answered(job, status=answer.status, headers=headers)


def resize_answered(resize: Resize, answer: Answer) -> Response[bytes]:
    """A request that was just asked for or cancelled."""
    headers = {"Location": f"/v1/resizes/{resize.id}"} | replay_header(answer)
    return answered(resize, status=answer.status, headers=headers)


def replay_header(answer: Answer) -> dict[str, str]:
    return {"Idempotent-Replay": "true"} if answer.replay else {}


def page(items: Sequence[Item], limit: int, cursor: Any) -> Response[bytes]:
    """A list of at most `limit`, of which one more was read to see whether there is a next page.

    `cursor` makes the cursor of the last item shown.
    """
    shown = list(items[:limit])
    return answered(Page(items=shown, next=cursor(shown[-1]) if len(items) > limit else None))


def opaque(text: bytes) -> str:
    """A cursor of several parts, as one word."""
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def unveiled(cursor: str) -> bytes:
    """The parts of an opaque cursor. Raises ValueError."""
    padded = cursor.encode() + b"=" * (-len(cursor) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)
