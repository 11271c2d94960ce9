"""`GET /v1/usage`: what was given to whom, in JSON or CSV."""

import csv
import io
from typing import get_args

from litestar import Response, get
from litestar.di import NamedDependency
from msgspec import UNSET, structs

from app.api.answering import answered
from app.api.asking import Asked, Query, invalid_query
from app.api.schema import doc
from app.api.services import Services
from app.db.accounts import Caller
from app.db.errors import translated
from app.db.usage import Frame, UsageAsk, is_time_zone, usage_report
from app.wire.reports import UsageBy, UsageItem, UsageReport

CSV = "text/csv"
NAMES = ("from", "to", "by", "tz", "format")
LONGEST = {"day": "40,000 days", "hour": "400 days"}


@get(
    "/v1/usage",
    opt=doc(
        "What jobs were given, by job, owner, project, queue, host, day or hour",
        gives=UsageReport,
        query=NAMES,
        also=CSV,
        told="Owners see their own jobs. `from` and `to` are times, or dates in `tz`; `to` is not "
        "included. What a task used is spread evenly over its range where it is cut.",
    ),
)
async def show_usage_report(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    query = Query(request, *NAMES)
    form = query.choice("format", ("json", "csv")) or _accepted_form(request)
    ask = UsageAsk(
        by=query.choice("by", get_args(UsageBy)) or "project",
        tz=query.text("tz") or "UTC",
        since=query.day_or_moment("from"),
        until=query.day_or_moment("to"),
        sees_only=caller.sees_only,
    )
    with translated():
        async with services.pool.connection() as conn:
            if ask.tz not in services.time_zones:
                if not await is_time_zone(conn, ask.tz):
                    raise invalid_query("tz", "give an IANA time zone like Europe/Berlin")
                services.time_zones.add(ask.tz)
            frame, items = await usage_report(conn, ask)
    _check(frame, ask.by)
    return _csv(ask.by, items) if form == "csv" else _json(ask, frame, items)


def _accepted_form(request: Asked) -> str:
    return "csv" if CSV in request.headers.get("accept", "") else "json"


def _check(frame: Frame, by: str) -> None:
    if frame.is_backwards:
        raise invalid_query("to", "it has to be later than from")
    if frame.is_too_long:
        raise invalid_query("from", f"by {by} a report covers at most {LONGEST[by]}")


def _json(ask: UsageAsk, frame: Frame, items: list[UsageItem]) -> Response[bytes]:
    return answered(
        UsageReport(
            by=ask.by,
            tz=ask.tz,
            from_at=frame.from_at,
            to_at=frame.to_at,
            as_of=frame.as_of,
            items=items,
        )
    )


def _csv(by: str, items: list[UsageItem]) -> Response[bytes]:
    names = [by, *(field.name for field in structs.fields(UsageItem) if field.required)]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    for item in items:
        values = structs.asdict(item)
        writer.writerow("" if values[n] in (None, UNSET) else values[n] for n in names)
    headers = {"Content-Type": f"{CSV}; charset=utf-8"}
    return Response(text.getvalue().encode(), headers=headers)


HANDLERS = [show_usage_report]
