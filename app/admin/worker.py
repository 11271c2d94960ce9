"""`xce worker`: one host's daemon."""

from pathlib import Path
from typing import Any

import click


@click.command("worker")
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/xce"),
    show_default=True,
    help="Where the keeper, its records and the jobs' run folders live.",
)
@click.option("--api-url", help="What tasks get as XCE_API_URL.")
@click.option(
    "--limit-cpus", is_flag=True, help="Let no task use more CPU than it asked for (cgroup v2)."
)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="ADDR:PORT",
    help="The port where controllers fetch output; 0 takes a free one.",
)
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="Where controllers reach that port  [default: where it listens]",
)
@click.option("--as-starter", is_flag=True, hidden=True, help="As root, run jobs as root.")
# Only to be in the command line, where the supervisor's successor looks for it.
@click.option("--folder", hidden=True, expose_value=False, help="Whose daemon it is.")
@click.option("--parent", type=int, hidden=True, help="End when this process ends.")
def command(*, parent: int | None, **options: Any) -> None:
    """Run the worker of one host; the database login says which.

    Its tasks live on when it ends, and the next worker on the same folder takes them over.
    """
    from app.daemons.worker import WorkerOptions, serve
    from app.runtime.logs import configure_logs
    from app.runtime.process import end_with_parent
    from app.runtime.settings import Settings

    if parent is not None:
        end_with_parent(parent)
    settings = Settings.from_environment()
    configure_logs("worker", level=settings.log_level)
    serve(settings, WorkerOptions(**options))
