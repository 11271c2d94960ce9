"""An open stream of events that comes back by itself."""

from collections.abc import Iterable, Iterator

from app.client.errors import Unavailable
from app.client.link import Link
from app.wire.encoding import decode
from app.wire.events import Event

#: Three heartbeats of the API's that did not come.
SILENCE_S = 45.0


def follow(link: Link, path: str) -> Iterator[Event]:
    """Each event after the cursor in `path` once, for ever. Raises Refused.

    Raises Unavailable only where no connection came about in the beginning.
    """
    last: str | None = None
    patience = link.patience()
    while True:
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = last
        try:
            for event in _events(link.lines(path, headers, silence_s=SILENCE_S)):
                # A heartbeat or an event: from now on it is there, and may be away for a while.
                patience = link.patience(is_endless=True)
                if event is not None:
                    last = event.cursor
                    yield event
            ended = Unavailable("unavailable", "the stream ended")
        except Unavailable as error:
            ended = error
        patience.lose(ended)


def _events(lines: Iterable[bytes]) -> Iterator[Event | None]:
    """The events of a stream of server-sent events; None for a line that is none."""
    for line in lines:
        # The half of a line that came before the connection broke.
        if not line.endswith(b"\n"):
            return
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        # Ours has all of an event in one line; the others repeat parts of it.
        yield decode(value, Event) if name == b"data" else None
