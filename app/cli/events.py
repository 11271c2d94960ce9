"""`xcecli events`."""

import sys
from typing import TYPE_CHECKING

import click

from app.cli.output import output_option, plain_text
from app.cli.session import client
from app.cli.values import ID

if TYPE_CHECKING:
    from app.wire.events import Event


@click.command()
@click.option(
    "--after", metavar="CURSOR|now", help="Begin after this event (default: the oldest kept)."
)
@click.option("--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--job", "job_id", metavar="ID", type=ID, help="Of this job alone.")
@output_option
def events(*, after: str | None, follow: bool, job_id: int | None, output: str) -> None:
    """What happened to your jobs, in the order of the commits; operators see everything.

    Each line begins with the cursor of its event. JSON is one object a line.
    """
    with client() as api:
        found = api.follow_events if follow else api.events
        for event in found(after, job_id=job_id):
            print(_json(event) if output == "json" else _line(event, is_wide=output == "wide"))
            if follow:
                sys.stdout.flush()


def _json(event: "Event") -> str:
    from app.wire.encoding import encode

    return encode(event).decode()


def _line(event: "Event", *, is_wide: bool) -> str:
    from msgspec import UNSET

    told = [event.cursor, event.at, f"job {event.job_id}" if event.job_id else None]
    if event.task is not UNSET:
        told.append(f"task {event.task}")
    elif event.host is not UNSET:
        told.append(f"host {event.host}")
    elif event.request_id is not UNSET:
        told.append(f"{event.kind} {event.request_id}")
    told.append(f"{event.source} > {event.target}")
    told.append(f"{event.event} by {event.actor}")
    if is_wide:
        told += [f"attempt {event.attempt}", f"generation {event.generation}"]
    told.append(f"({event.reason})" if event.reason else None)
    return "  ".join(plain_text(part) for part in told if part is not None)
