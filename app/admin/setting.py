"""`xce setting`: reads or changes what all daemons go by."""

import click


@click.command("setting")
@click.argument("name", required=False)
@click.argument("value", type=float, required=False)
def command(name: str | None, value: float | None) -> None:
    """Change the setting NAME to VALUE, or print NAME, or print them all."""
    from app.db.administration import Administration
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        if name is not None and value is not None:
            administration.write_settings({name: value})
        settings = administration.settings()
    if name is not None and name not in settings:
        raise click.BadParameter(f"no setting {name}; there are {', '.join(settings)}")
    for known, current in settings.items():
        if name in (None, known):
            click.echo(f"{known} {current:g}")
