"""`xce migrate`: brings the database to the schema of this release."""

import click


@click.command("migrate")
@click.option(
    "--after-restore",
    is_flag=True,
    help="The database was restored from a backup: let nothing be placed or stopped yet.",
)
def command(*, after_restore: bool) -> None:
    """Bring the database to the schema of this release.

    Safe to repeat, and safe when several do it at once.
    """
    from app.db.administration import Administration
    from app.db.migrate import migrate
    from app.runtime.settings import Settings

    url = Settings.from_environment().database_url
    report = migrate(url)
    if after_restore:
        with Administration.open(url) as administration:
            administration.begin_restore()
        click.echo("paused: start controllers and workers, then look at `xce restore`")
    for name in report.applied:
        click.echo(f"applied {name}")
    if not report.applied:
        click.echo("routines refreshed" if report.is_refreshed else "nothing to do")
