"""`xcecli tui`."""

import sys
from importlib import import_module

import click

from app.cli.session import USAGE, client, fail

INTERVAL_S = 2.0


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3_600),
    default=INTERVAL_S,
    show_default=True,
    help="Look again after so many seconds at the latest; events make it sooner.",
)
def tui(interval_s: float) -> None:
    """Hosts, jobs and open requests on one screen, kept current. It changes nothing."""
    with client() as api:
        me = api.caller()
    # It reads from the first and draws on the last.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        fail("tui needs a terminal; `jobs --watch` also prints to a pipe", USAGE)
    # By name, because the screen stands above the command line: it may know app, never app it.
    import_module("tui.app").run(me, interval_s=interval_s)
