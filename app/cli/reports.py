"""`xcecli history`, `usage`, `allocation`."""

from typing import Any

import click

from app.cli.output import output_option, print_many, print_one
from app.cli.session import client
from app.cli.values import ID

HISTORY = (
    *("at", "kind", "request_id", "task", "source", "event", "target", "actor"),
    *("since_previous_s", "reason"),
)
USAGE = (
    *("job_id", "as_of", "task_seconds", "cpu_seconds", "mem_mib_seconds", "gpu_seconds"),
    *("cpu_used_s", "mem_peak_mib"),
)
TASKS = ("index", "attempt", "host", "cpus", "mem_mib", "gpus", "since", "until")


@click.command()
@click.argument("job_id", metavar="[JOB]", type=ID, required=False)
@click.option("--request", "request_id", type=ID, help="Of this request alone.")
@output_option
def history(job_id: int | None, request_id: int | None, output: str) -> None:
    """What happened to JOB, its requests and its tasks; or to one request."""
    if (job_id is None) == (request_id is None):
        raise click.UsageError("name a JOB, or a request with --request")
    with client() as api:
        found: Any = api.request_history(request_id) if request_id else api.history(job_id or 0)
        print_many(found, output, HISTORY)


@click.command()
@click.argument("job_id", metavar="JOB", type=ID)
@output_option
def usage(job_id: int, output: str) -> None:
    """What JOB was given up to now, exact to the microsecond."""
    with client() as api:
        print_one(api.usage(job_id), output, USAGE)


@click.command()
@click.argument("job_id", metavar="JOB", type=ID)
@click.option("--as-of", help="A time like 2026-12-01T08:00:00Z (default: now).")
@output_option
def allocation(job_id: int, as_of: str | None, output: str) -> None:
    """The tasks whose capacity JOB has, or had at a moment."""
    with client() as api:
        found = api.allocation(job_id, as_of=as_of)
    if output == "json":
        print_one(found, output, ())
    else:
        print_many(found.tasks, output, TASKS)
