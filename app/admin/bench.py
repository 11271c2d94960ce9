"""`xce bench`: figures as ratios to a floor measured in the same run."""

import importlib
import json
import sys
from typing import Any

import click


@click.group("bench")
def command() -> None:
    """Measure figures; each benchmark starts what it needs in a temporary folder.

    The table and, last of all, one JSON object go to stdout. Exit code 0 when the figures are
    reached, 1 when not.
    """


@command.command("latency")
@click.option("--samples", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("--gap-s", type=click.FloatRange(min=0), default=0.05, show_default=True)
def latency(*, samples: int, gap_s: float) -> None:
    """Grow to a running process, and shrink to free room, on an idle system."""
    finish("latency", samples=samples, gap_s=gap_s)


@command.command("throughput")
@click.option("--seconds", type=click.FloatRange(min=1), default=30, show_default=True)
def throughput(*, seconds: float) -> None:
    """Grows a second over HTTP, through API, scheduler and stub workers."""
    finish("throughput", seconds=seconds)


@command.command("idle")
@click.option("--seconds", type=click.FloatRange(min=1), default=60, show_default=True)
def idle(*, seconds: float) -> None:
    """What controller, worker and keeper cost while nothing happens."""
    finish("idle", seconds=seconds)


def finish(name: str, **options: Any) -> None:
    """Run one benchmark, print its object, and exit as it says."""
    module = importlib.import_module(f"app.bench.{name}")
    result: dict[str, Any] = module.run(say=click.echo, **options)
    click.echo(json.dumps(result))
    sys.exit(0 if result["ok"] else 1)
