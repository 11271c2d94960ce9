"""`xce host`: machines that jobs run on."""

from pathlib import Path

import click


@click.group("host")
def command() -> None:
    """Hosts."""


@command.command("add")
@click.argument("name")
@click.option("--cpus", type=click.IntRange(min=1))
@click.option("--mem-mib", type=click.IntRange(min=0))
@click.option("--gpus", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option(
    "--passfile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the password of the host's login goes (mode 0600)  [default: NAME.passfile]",
)
def add(
    *,
    name: str,
    cpus: int | None,
    mem_mib: int | None,
    gpus: int,
    labels: tuple[str, ...],
    passfile: Path | None,
) -> None:
    """Add the host NAME and the database login of its worker.

    For a host that exists (added over REST, or by this command before) it only gives the login a
    new password; its size is changed over REST.
    """
    from app.db.administration import Administration, HostSize
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        login = administration.add_host(
            name,
            None if cpus is None or mem_mib is None else HostSize(cpus, mem_mib, gpus),
            passfile=(passfile or Path(f"{name}.passfile")).absolute(),
            labels=parsed_labels(labels),
        )
    click.echo(f"host {name}: the password of its login {login.name} is in {login.passfile}")
    click.echo("move that file to the host (mode 0600) and start the worker there with")
    click.echo(f"  XCE_DATABASE_URL='{login.url}' xce worker")


def parsed_labels(labels: tuple[str, ...]) -> dict[str, str]:
    """`KEY=VALUE` strings as a mapping."""
    pairs = [label.partition("=") for label in labels]
    wrong = [key for key, equals, _ in pairs if not key or not equals]
    if wrong:
        raise click.BadParameter("labels are written KEY=VALUE")
    return {key: value for key, _, value in pairs}
