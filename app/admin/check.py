"""`xce check`: the rules that always hold (DESIGN §4), as queries over the live database."""

import sys

import click


@click.command("check")
def command() -> None:
    """Check the rules that always hold; one line for each row that breaks one."""
    from app.db.administration import Administration
    from app.db.migrate import verify
    from app.runtime.settings import Settings

    url = Settings.from_environment().database_url
    verify(url)
    with Administration.open(url) as administration:
        count, broken = administration.broken_rules()
    for found in broken:
        click.echo(f"{found.rule}  {found.row}  {found.what}")
    if broken:
        sys.exit(1)
    click.echo(f"ok ({count} rules)")
