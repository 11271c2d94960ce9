"""`xcecli history`, `usage`, `allocation`."""

import click

from app.cli.output import many_text, one_text
from app.cli.values import ID
from app.cli.viewing import View, view_options

HISTORY = (
    *("at", "kind", "request_id", "task", "source", "event", "target", "actor"),
    *("since_previous_s", "reason"),
)
MEASURES = (
    *("task_seconds", "cpu_seconds", "mem_mib_seconds", "gpu_seconds"),
    *("cpu_used_s", "mem_peak_mib"),
)
TASKS = ("index", "attempt", "host", "cpus", "mem_mib", "gpus", "since", "until")
GROUPS = ("job", "owner", "project", "queue", "host", "day", "hour")


@click.command()
@click.argument("job_id", metavar="[JOB]", type=ID, required=False)
@click.option("--request", "request_id", type=ID, help="Of this request alone.")
@view_options
def history(job_id: int | None, request_id: int | None, view: View) -> None:
    """What happened to JOB, its requests and its tasks; or to one request."""
    if (job_id is None) == (request_id is None):
        raise click.UsageError("name a JOB, or a request with --request")
    if request_id is not None:
        view.many(HISTORY, lambda api: api.request_history(request_id))
    else:
        view.many(HISTORY, lambda api: api.history(job_id or 0))


@click.command()
@click.argument("job_id", metavar="[JOB]", type=ID, required=False)
@click.option("--from", "since", metavar="TIME", help="2026-12-01, or 2026-12-01T08:00:00Z.")
@click.option("--to", "until", metavar="TIME", help="The same; not included (default: now).")
@click.option("--by", type=click.Choice(GROUPS), help="One line for each (default: project).")
@click.option("--tz", metavar="ZONE", help="Of dates, days and hours (default: UTC).")
@view_options
def usage(
    *,
    job_id: int | None,
    since: str | None,
    until: str | None,
    by: str | None,
    tz: str | None,
    view: View,
) -> None:
    """What JOB was given up to now; without JOB, what all jobs you see were given in a time.

    Exact to the microsecond.
    """
    asked = {"from": since, "to": until, "by": by, "tz": tz}
    if job_id is None:
        view.text(
            lambda api: _inner_text(
                api.usage_report(**asked), "items", view, (by or "project", *MEASURES)
            )
        )
    elif any(asked.values()):
        raise click.UsageError("--from, --to, --by and --tz are for a report, without a JOB")
    else:
        view.one(("job_id", "as_of", *MEASURES), lambda api: api.usage(job_id))


@click.command()
@click.argument("job_id", metavar="JOB", type=ID)
@click.option("--as-of", help="A time like 2026-12-01T08:00:00Z (default: now).")
@view_options
def allocation(job_id: int, as_of: str | None, view: View) -> None:
    """The tasks whose capacity JOB has, or had at a moment."""
    view.text(lambda api: _inner_text(api.allocation(job_id, as_of=as_of), "tasks", view, TASKS))


def _inner_text(found: object, name: str, view: View, columns: tuple[str, ...]) -> str:
    """The list that matters in an answer as a table; programs get the whole answer."""
    if view.output in {"json", "yaml"}:
        return one_text(found, view.output, ())
    return many_text(getattr(found, name), view.output, columns)
