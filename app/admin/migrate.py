"""`xce migrate`: brings the database to the schema of this release."""

import click


@click.command("migrate")
def command() -> None:
    """Bring the database to the schema of this release.

    Safe to repeat, and safe when several do it at once.
    """
    from app.db.migrate import migrate
    from app.runtime.settings import Settings

    report = migrate(Settings.from_environment().database_url)
    for name in report.applied:
        click.echo(f"applied {name}")
    if not report.applied:
        click.echo("routines refreshed" if report.is_refreshed else "nothing to do")
