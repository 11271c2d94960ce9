"""`xcecli hosts` and `xcecli host …`: everybody may look, operators change."""

import click

from app.cli.output import output_option, print_one
from app.cli.session import client, say
from app.cli.values import NAMES, joined
from app.cli.viewing import View, view_options

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
@view_options
def list_hosts(state: list[str] | None, view: View) -> None:
    """List hosts."""
    view.many(LISTED, lambda api: api.hosts(state=joined(state)))


@click.group()
def host() -> None:
    """Show hosts; drain, resume, vouch for and remove them."""


@host.command()
@click.argument("name")
@view_options
def show(name: str, view: View) -> None:
    """Show the host NAME."""
    view.one(SHOWN, lambda api: api.host(name))


@host.command()
@click.argument("name")
@click.option(
    "--shrink", is_flag=True, help="Ask jobs to give their tasks there back, where they may."
)
@output_option
def drain(name: str, shrink: bool, output: str) -> None:
    """Start nothing new on the host NAME; it is down once it is empty."""
    with client() as api:
        print_one(api.drain(name, shrink=shrink), output, SHOWN)


@host.command()
@click.argument("name")
@output_option
def resume(name: str, output: str) -> None:
    """Use the host NAME again."""
    with client() as api:
        print_one(api.resume(name), output, SHOWN)


@host.command()
@click.argument("name")
@click.option(
    "--confirm-dead", is_flag=True, help="I made sure that the machine is off, or was restarted."
)
@output_option
def down(name: str, confirm_dead: bool, output: str) -> None:
    """Vouch that the lost host NAME is off.

    Its tasks end as lost at once, without waiting for the fence.
    """
    with client() as api:
        print_one(api.retire(name, confirm_dead=confirm_dead), output, SHOWN)


@host.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove the host NAME, which is down, for good."""
    with client() as api:
        api.remove_host(name)
    say(f"host {name} is removed")
