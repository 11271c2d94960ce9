"""What happens: the feed of events, page by page or as a stream."""

from litestar import Response, get
from litestar.di import NamedDependency

from app.api.answering import answered
from app.api.asking import Asked, Query, id_of, invalid_query
from app.api.auth import bearer_sha256
from app.api.problems import Refusal, not_found
from app.api.schema import doc
from app.api.services import Services
from app.db.accounts import Caller
from app.db.feed import START, Cursor, Wanted, cursor_of, feed_end, read_feed
from app.db.jobs import is_visible
from app.wire.events import EventPage

NOW = "now"
STREAM = "text/event-stream"


@get(
    "/v1/events",
    opt=doc(
        "What happens, in the order of the commits; a stream with `follow` or if that is accepted",
        gives=EventPage,
        query=("after", "limit", "follow", "job_id"),
    ),
)
async def show_events(
    request: Asked,
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    query = Query(request, "after", "limit", "follow", "job_id")
    limit = query.limit()
    follows = query.answer("follow")
    if follows is None:
        follows = STREAM in request.headers.get("accept", "")
    if follows and query.text("limit") is not None:
        raise invalid_query("limit", "a stream has none; leave it out")
    wanted = await _wanted(query, services, caller)
    after = await _after(request, query, services)
    if not follows:
        async with services.lent() as conn:
            read = await read_feed(conn, after, limit=limit, wanted=wanted)
        return answered(EventPage([entry.event for entry in read.entries], str(read.reached)))
    sha256 = bearer_sha256(request)

    async def still_valid() -> bool:
        return await services.callers.ask(sha256) == caller

    return services.stream.answer(caller, wanted, after, still_valid=still_valid)


async def _wanted(query: Query, services: Services, caller: Caller) -> Wanted:
    text = query.text("job_id")
    if text is None:
        return Wanted(caller.sees_only)
    job_id = id_of(text, "job")
    async with services.lent() as conn:
        if not await is_visible(conn, job_id, sees_only=caller.sees_only):
            raise not_found("job")
    return Wanted(caller.sees_only, job_id)


async def _after(request: Asked, query: Query, services: Services) -> Cursor:
    """Where to begin. A reader that comes back says it in a header and repeats its query."""
    asked = query.text("after")
    last = request.headers.get("last-event-id")
    if not last and asked == NOW:
        async with services.lent() as conn:
            return (await feed_end(conn)).cursor
    try:
        after = START if asked in {None, NOW} else cursor_of(asked or "")
        return cursor_of(last) if last else after
    except ValueError:
        raise Refusal(
            "invalid",
            "that is no cursor; give one of an event, the `next` of a page, or `now`",
            path="Last-Event-ID" if last else "?after",
        ) from None


HANDLERS = [show_events]
