"""`xcecli requeue`, `hold`, `release`."""

import click

from app.cli.jobs import SHOWN
from app.cli.output import output_option, print_one
from app.cli.session import client
from app.cli.values import ID, if_match


@click.command()
@click.argument("job_id", metavar="JOB", type=ID)
@if_match
@output_option
def requeue(job_id: int, if_match: int | None, output: str) -> None:
    """Stop JOB and run it again, as a new attempt with the tasks it was submitted with."""
    with client() as api:
        print_one(api.requeue(job_id, if_match=if_match), output, SHOWN)


@click.command()
@click.argument("job_id", metavar="JOB", type=ID)
@if_match
@output_option
def hold(job_id: int, if_match: int | None, output: str) -> None:
    """Place nothing new of JOB; what runs goes on."""
    with client() as api:
        print_one(api.hold(job_id, if_match=if_match), output, SHOWN)


@click.command()
@click.argument("job_id", metavar="JOB", type=ID)
@if_match
@output_option
def release(job_id: int, if_match: int | None, output: str) -> None:
    """End the hold of JOB."""
    with client() as api:
        print_one(api.release(job_id, if_match=if_match), output, SHOWN)
