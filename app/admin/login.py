"""`xce login`: database logins of daemons, each with the least it needs."""

from pathlib import Path

import click


@click.group("login")
def command() -> None:
    """Database logins of daemons; a worker's is made by `xce host add`."""


@command.command("controller")
@click.option(
    "--passfile",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("controller.passfile"),
    show_default=True,
    help="Where the password goes (mode 0600).",
)
def controller(*, passfile: Path) -> None:
    """Make the login of the controllers, or give it a new password.

    It reads the tables and changes them through functions only.
    """
    from app.db.administration import Administration
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        login = administration.add_controller_login(passfile.absolute())
    click.echo(f"the password of the login {login.name} is in {login.passfile}")
    click.echo("move that file to each controller (mode 0600) and start it there with")
    click.echo(f"  XCE_DATABASE_URL='{login.url}' xce controller")
