"""`xce token`: what lets a user's programs in."""

from datetime import timedelta
from pathlib import Path

import click


@click.group("token")
def command() -> None:
    """Tokens."""


@command.command("create")
@click.argument("user")
@click.option("--operator", "is_operator", is_flag=True, help="An operator's token.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="Valid for so long.")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Where the token goes (made new, mode 0600); it is never printed.",
)
def create(user: str, is_operator: bool, days: float | None, path: Path) -> None:
    """Make a token for USER and write it to a private file."""
    from app.db.administration import Administration
    from app.runtime.clock import now
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        user_id = administration.user_id(user)
        if user_id is None:
            raise click.BadParameter(f"no user {user}; add it with: xce user add {user}")
        token_id = administration.add_token(
            user_id,
            "operator" if is_operator else "owner",
            path=path,
            expires_at=None if days is None else now() + timedelta(days=days),
        )
    click.echo(f"token {token_id} is in {path}; use it with: export XCE_TOKEN_FILE={path}")


@command.command("revoke")
@click.argument("token_id", type=int)
def revoke(token_id: int) -> None:
    """Make a token useless, at once and for good."""
    from app.db.administration import Administration
    from app.runtime.settings import Settings

    with Administration.open(Settings.from_environment().database_url) as administration:
        if not administration.revoke_token(token_id):
            raise click.BadParameter(f"there is no valid token {token_id}")
    click.echo(f"token {token_id} is revoked")
