"""`xce demo`: a cluster, a farm that grows and shrinks on it, and the bill; in half a minute."""

import signal
import sys
from types import FrameType

import click


@click.command("demo")
def command() -> None:
    """Start a cluster here and let a job grow and shrink on it, in about half a minute.

    Progress goes to stderr, tables to stdout; the last line of stdout is one JSON object. Nothing
    is left behind.
    """
    from app.admin.demo_story import tell

    signal.signal(signal.SIGTERM, leave)
    # A shell that starts it in the background has Ctrl-C ignored for it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tell()
    except KeyboardInterrupt:
        # click would make it 1.
        click.echo("interrupted", err=True)
        sys.exit(130)


def leave(number: int, _frame: FrameType | None) -> None:
    """End by way of everything that has to be cleaned up."""
    sys.exit(128 + number)
