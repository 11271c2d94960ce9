"""`xce restore`: what was found after a backup was put back, and the word to go on."""

import click


@click.group("restore", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """After `xce migrate --after-restore`: who has reported, and what lives that nobody knows."""
    if ctx.invoked_subcommand is not None:
        return
    from app.db.administration import Administration
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        found = administration.restored()
    if not found.is_paused:
        click.echo("not paused: this database places and stops as usual")
        return
    click.echo("paused: nothing is placed or stopped")
    click.echo(f"not reported yet: {', '.join(found.unreported) or 'none'}")
    for task in found.unknown:
        click.echo(
            f"unknown: job {task.job_id} attempt {task.attempt} task {task.index} on {task.host}; "
            "it will be stopped"
        )
    click.echo("go on with: xce restore resume")


@command.command("resume")
@click.option("--without", multiple=True, metavar="HOST", help="Go on although HOST is silent.")
def resume(*, without: tuple[str, ...]) -> None:
    """Place and stop again; tasks that nobody knows are stopped then."""
    from app.db.administration import Administration
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        administration.end_restore(without)
        administration.ring([*administration.host_channels(), "xce_plan"])
    click.echo("resumed")
