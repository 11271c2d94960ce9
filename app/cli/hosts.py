"""`xcecli hosts` and `xcecli host …`, for operators."""

import click

from app.cli.output import output_option, print_many, print_one
from app.cli.session import client
from app.cli.values import NAMES

LISTED = (
    *("name", "state", "cpus", "cpus_used", "cpus_held", "mem_mib", "mem_mib_used", "gpus"),
    *("gpus_used", "drain_wanted", "last_seen_at", "reason"),
)
SHOWN = (
    *("id", "name", "state", "reason", "drain_wanted", "cpus", "cpus_used", "cpus_held"),
    *("mem_mib", "mem_mib_used", "mem_mib_held", "gpus", "gpus_used", "gpus_held", "labels"),
    "last_seen_at",
)


@click.command("hosts")
@click.option("--state", type=NAMES, help="joining, up, draining, lost, down, removed.")
@output_option
def list_hosts(state: list[str] | None, output: str) -> None:
    """List hosts."""
    with client() as api:
        print_many(api.hosts(state=",".join(state) if state else None), output, LISTED)


@click.group()
def host() -> None:
    """Show, drain and resume hosts."""


@host.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show the host NAME."""
    with client() as api:
        print_one(api.host(name), output, SHOWN)


@host.command()
@click.argument("name")
@output_option
def drain(name: str, output: str) -> None:
    """Start nothing new on the host NAME; it is down once it is empty."""
    with client() as api:
        print_one(api.drain(name), output, SHOWN)


@host.command()
@click.argument("name")
@output_option
def resume(name: str, output: str) -> None:
    """Use the host NAME again."""
    with client() as api:
        print_one(api.resume(name), output, SHOWN)
