"""`xcecli settings` and `xcecli setting`, for operators."""

import click

from app.cli.output import output_option, print_one
from app.cli.session import client
from app.cli.viewing import View, view_options

COLUMNS = ("name", "value", "unit", "changed_by", "changed_at", "why")


@click.command("settings")
@view_options
def list_settings(view: View) -> None:
    """List what all daemons go by."""
    view.many(COLUMNS, lambda api: api.settings())


@click.command("setting")
@click.argument("name")
@click.argument("value", type=float)
@output_option
def change_setting(name: str, value: float, output: str) -> None:
    """Change the setting NAME to VALUE."""
    with client() as api:
        print_one(api.put_setting(name, value), output, COLUMNS)
