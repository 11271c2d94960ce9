"""`xce controller`: the API, the scheduler and the chores in one process."""

from pathlib import Path

import click

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("controller")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8420, show_default=True)
@click.option(
    "--tls-cert",
    "--certificate",
    "certificate",
    type=FILE,
    help="TLS certificate (PEM), with its chain.",
)
@click.option("--tls-key", "--key", "key", type=FILE, help="The certificate's key (PEM).")
@click.option("--insecure", is_flag=True, help="Serve without TLS beyond loopback all the same.")
@click.option(
    "--calls-per-s",
    type=click.FloatRange(0, min_open=True),
    default=5000,
    show_default=True,
    help="Calls that one token may make here; what it left of 5 s it may make at once.",
)
@click.option("--shared-port", is_flag=True, hidden=True, help="A supervisor holds the port.")
# Only to be in the command line, where the supervisor's successor looks for it.
@click.option("--folder", hidden=True, expose_value=False, help="Whose daemon it is.")
@click.option("--parent", type=int, hidden=True, help="End when this process ends.")
def command(
    *,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    insecure: bool,
    calls_per_s: float,
    shared_port: bool,
    parent: int | None,
) -> None:
    """Run a controller: API, scheduler and chores.

    Several may run on one database: all serve the API, one of them decides.
    """
    from app.daemons.api_server import Place
    from app.daemons.controller import main
    from app.runtime.process import end_with_parent
    from app.runtime.settings import Settings

    if parent is not None:
        end_with_parent(parent)
    place = Place(host, port, certificate, key, insecure=insecure, is_shared=shared_port)
    main(Settings.from_environment(), place, calls_per_s=calls_per_s)
