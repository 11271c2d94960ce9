"""`xcecli resize …`."""

from typing import TYPE_CHECKING, Any

import click

from app.cli.output import output_option, print_one
from app.cli.session import client
from app.cli.values import COUNT, ID, INDICES, NAMES, RANGE, SECONDS, SOME_SECONDS, if_match, joined
from app.cli.viewing import View, view_options
from app.cli.waiting import end, wait_options, waited_for_request

if TYPE_CHECKING:
    from app.client.client import Client
    from app.wire.resizes import Resize, ShrinkAsk

LISTED = (
    *("id", "kind", "state", "tasks_asked", "tasks_granted", "hosts", "task_indices"),
    *("requested_by", "created_at", "finished_at", "reason"),
)
SHOWN = (
    *("id", "job_id", "kind", "state", "reason", "next", "tasks_asked", "tasks_min", "tasks_max"),
    *("tasks_granted", "hosts", "task_indices", "origin", "requested_by", "deadline_at"),
    *("created_at", "committed_at", "finished_at", "generation"),
)
BAD = ("cancelled", "failed")

deadline = click.option(
    "--deadline-s", type=SOME_SECONDS, help="Cancel it if it still waits after so many seconds."
)
grace = click.option("--grace-s", type=SECONDS, help="From TERM to KILL (default: the job's).")


@click.group()
def resize() -> None:
    """Grow and shrink running jobs; list, show and cancel the requests."""


@resize.command()
@click.argument("tasks", metavar="[MIN,]N", type=RANGE)
@click.argument("job_id", metavar="JOB", type=ID)
@click.option("--hosts", type=NAMES, help="Only on these, separated by commas.")
@click.option("--exclude-hosts", type=NAMES, help="On none of these.")
@click.option("--existing-hosts", type=click.Choice(["prefer", "exclude", "any"]))
@deadline
@grace
@if_match
@wait_options
@output_option
def request(
    *,
    tasks: Any,
    job_id: int,
    if_match: int | None,
    wait: bool,
    timeout_s: float | None,
    output: str,
    **members: Any,
) -> None:
    """Ask for N more tasks of JOB, or for what fits from MIN up to N."""
    from app.wire.resizes import ResizeAsk

    given = {name: value for name, value in members.items() if value is not None}
    with client() as api:
        asked = api.resize(job_id, ResizeAsk(grow=tasks, **given), if_match=if_match)
        _tell(api, asked, wait=wait, timeout_s=timeout_s, output=output)


@resize.command()
@click.argument("size", metavar="N", type=click.IntRange(0))
@click.argument("job_id", metavar="JOB", type=ID)
@deadline
@grace
@if_match
@wait_options
@output_option
def to(
    *,
    size: int,
    job_id: int,
    if_match: int | None,
    wait: bool,
    timeout_s: float | None,
    output: str,
    deadline_s: float | None,
    grace_s: float | None,
) -> None:
    """Bring JOB to N tasks; whatever waits to grow it is superseded."""
    from app.wire.resizes import ResizeAsk

    with client() as api:
        body = ResizeAsk(to=size, deadline_s=deadline_s, grace_s=grace_s)
        asked = api.resize(job_id, body, if_match=if_match)
        _tell(api, asked, wait=wait, timeout_s=timeout_s, output=output)


@resize.command()
@click.argument("spec_and_job", metavar="[SPEC] JOB", nargs=-1, required=True)
@click.option("--tasks", type=INDICES, help="These tasks, by index: 3,4.")
@click.option("--hosts", type=NAMES, help="Every task on these hosts: h2,h3.")
@click.option("--count", type=COUNT, help="So many tasks; xce picks which.")
@deadline
@grace
@if_match
@wait_options
@output_option
def release(
    *,
    spec_and_job: tuple[str, ...],
    if_match: int | None,
    wait: bool,
    timeout_s: float | None,
    output: str,
    deadline_s: float | None,
    grace_s: float | None,
    **named: Any,
) -> None:
    """Give tasks of JOB back.

    SPEC is a number (so many tasks; xce picks which), task indices written t3,t4, or host names
    written h2,h3 (every task there). The options say the same where a host's name looks like one
    of the others.
    """
    from app.wire.resizes import ResizeAsk

    ask, job_id = _what_and_job(spec_and_job, {k: v for k, v in named.items() if v is not None})
    with client() as api:
        body = ResizeAsk(shrink=ask, deadline_s=deadline_s, grace_s=grace_s)
        asked = api.resize(job_id, body, if_match=if_match)
        _tell(api, asked, wait=wait, timeout_s=timeout_s, output=output)


@resize.command()
@click.argument("request_id", metavar="REQUEST", type=ID)
@click.option("--count", type=COUNT, help="Take back so many of its tasks only.")
@output_option
def cancel(request_id: int, count: int | None, output: str) -> None:
    """Take REQUEST back; too late once it is committed or stopping."""
    with client() as api:
        print_one(api.cancel(request_id, count=count), output, SHOWN)


@resize.command("list")
@click.argument("job_id", metavar="JOB", type=ID)
@click.option("--all", "is_all", is_flag=True, help="The starts of its attempts too.")
@click.option("--kind", type=NAMES, help="start, grow, shrink.")
@click.option("--state", type=NAMES, help="pending, placed, committed, running, stopping, …")
@view_options
def list_requests(
    job_id: int, is_all: bool, kind: list[str] | None, state: list[str] | None, view: View
) -> None:
    """List the requests of JOB, oldest first."""
    filters = {"kind": joined(kind), "state": joined(state)}
    view.many(LISTED, lambda api: api.requests(job_id, is_all=is_all, **filters))


@resize.command("show")
@click.argument("request_id", metavar="REQUEST", type=ID)
@view_options
def show_request(request_id: int, view: View) -> None:
    """Show REQUEST, and who has to move next."""
    view.one(SHOWN, lambda api: api.request(request_id))


def _what_and_job(words: tuple[str, ...], named: dict[str, Any]) -> tuple["ShrinkAsk", int]:
    """The shrink that the words and options ask for, and of which job."""
    from app.wire.resizes import ShrinkAsk

    if len(words) + len(named) != 2:
        raise click.UsageError(
            "say what to release once: SPEC JOB, or one of --tasks, --hosts, --count and JOB"
        )
    job_id = ID.convert(words[-1], None, None)
    return ShrinkAsk(**(named or _spec(words[0]))), job_id


def _spec(spec: str) -> dict[str, Any]:
    parts = spec.split(",")
    if len(parts) == 1 and spec.isascii() and spec.isdigit():
        return {"count": COUNT.convert(spec, None, None)}
    if all(part[:1] == "t" and part[1:].isascii() and part[1:].isdigit() for part in parts):
        return {"tasks": INDICES.convert(spec, None, None)}
    if "*" in spec or "^" in spec:
        raise click.UsageError(
            f"SPEC {spec!r}: parts of a host are not released by name yet; name tasks, like t3,t4"
        )
    return {"hosts": NAMES.convert(spec, None, None)}


def _tell(
    api: "Client", asked: "Resize", *, wait: bool, timeout_s: float | None, output: str
) -> None:
    """Print the request, after the end of it where that is waited for."""
    is_in_time = True
    if wait:
        asked, is_in_time = waited_for_request(api, asked, timeout_s=timeout_s)
    print_one(asked, output, SHOWN)
    what = f"request {asked.id} is {asked.state}" + (f" ({asked.reason})" if asked.reason else "")
    if wait:
        is_good = asked.state not in BAD or asked.reason == "already_there"
        end(is_in_time, is_good=is_good, what=what)
