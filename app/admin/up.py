"""`xce up`: everything on one machine."""

import math
from pathlib import Path

import click


@click.command("up")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep everything in this folder between runs  [default: a temporary one]",
)
@click.option("--workers", type=click.IntRange(min=0, max=64), default=3, show_default=True)
@click.option("--controllers", type=click.IntRange(min=1, max=8), default=1, show_default=True)
@click.option("--cpus", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8420,
    show_default=True,
    help="Of the first controller; the next have the following ones. 0 takes free ones.",
)
@click.option(
    "--database-url",
    metavar="URL",
    help="Use this PostgreSQL instead of an embedded one; its password from passfile= in it or "
    "from PGPASSFILE. The role owns the database and may create roles.",
)
@click.option("--keep-tasks", is_flag=True, help="Tasks outlive the end; needs --data.")
@click.option(
    "--keep-s",
    type=click.FloatRange(0, 100_000_000, min_open=True),
    help="For how long, in seconds  [default: a day]",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=V", help="A setting, repeatable.")
@click.option("--parent", type=int, hidden=True, help="End when this process ends.")
@click.option("--json", "as_json", is_flag=True, help="One line on stdout when all is ready.")
def command(
    *,
    data: Path | None,
    workers: int,
    controllers: int,
    cpus: int,
    port: int,
    database_url: str | None,
    keep_tasks: bool,
    keep_s: float | None,
    settings: tuple[str, ...],
    parent: int | None,
    as_json: bool,
) -> None:
    """Run a whole cluster here: PostgreSQL, controllers, and workers that stand for h1 … hN.

    Each of the hosts has --cpus cpus. Ctrl-C stops it all and leaves nothing behind,
    but for the tasks with --keep-tasks.
    """
    from app.daemons.wakeup import Wakeup

    # Before the rest is imported, which takes longest: from now on a signal means a good end.
    wakeup = Wakeup()
    if keep_tasks and data is None:
        raise click.UsageError("--keep-tasks needs --data: the next start finds the tasks there")
    if keep_s is not None and not keep_tasks:
        raise click.UsageError("--keep-s says for how long; give --keep-tasks, too")
    from app.daemons.up import main
    from app.daemons.up_wishes import DAY_S, Wishes
    from app.runtime.process import end_with_parent

    if parent is not None:
        end_with_parent(parent)
    main(
        Wishes(
            data=data,
            workers=workers,
            controllers=controllers,
            cpus=cpus,
            port=port,
            database_url=database_url,
            settings=parsed_settings(settings),
            keep_s=(keep_s or DAY_S) if keep_tasks else None,
            as_json=as_json,
        ),
        wakeup,
    )


def parsed_settings(settings: tuple[str, ...]) -> dict[str, float]:
    """`NAME=V` strings as a mapping."""
    pairs = [setting.partition("=") for setting in settings]
    try:
        values = {name: float(value) for name, _, value in pairs}
    except ValueError as error:
        raise click.BadParameter("settings are written NAME=NUMBER", param_hint="--set") from error
    if not all(math.isfinite(value) for value in values.values()):
        raise click.BadParameter("a setting is a finite number", param_hint="--set")
    return values
