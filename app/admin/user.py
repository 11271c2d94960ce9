"""`xce user`: the people whose jobs run here."""

import click


@click.group("user")
def command() -> None:
    """Users."""


@command.command("add")
@click.argument("name")
@click.option("--operator", "is_operator", is_flag=True, help="May see and touch everything.")
@click.option("--os-user", help="Whom the user's jobs run as on the hosts.")
def add(name: str, is_operator: bool, os_user: str | None) -> None:
    """Add a user."""
    from app.db.administration import Administration
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        user_id = administration.add_user(name, is_operator=is_operator, os_user=os_user)
    click.echo(f"user {name} has id {user_id}; next: xce token create {name} --file PATH")
