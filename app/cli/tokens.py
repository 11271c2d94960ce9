"""`xcecli token …`: make, list and revoke tokens; a token itself goes to a private file only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from app.cli.output import output_option, print_one
from app.cli.session import REFUSED, client, fail, say
from app.cli.values import ID, NAMES, SOME_SECONDS, joined
from app.cli.viewing import View, view_options

COLUMNS = ("id", "user", "role", "state", "created_at", "expires_at", "last_used_at")


@click.group()
def token() -> None:
    """Make, list and revoke tokens."""


@token.command()
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Where the token goes (made new, mode 0600); it is never printed.",
)
@click.option("--user", help="For this user (operators; default: yourself).")
@click.option("--role", type=click.Choice(["owner", "operator"]), default="owner")
@click.option("--expires-in-s", type=SOME_SECONDS, help="Valid for so long (default: for ever).")
@output_option
def create(
    path: Path, user: str | None, role: str, expires_in_s: float | None, output: str
) -> None:
    """Make a token and write it to a private file."""
    from msgspec import UNSET, structs

    from app.wire.tokens import TokenAsk

    ask = TokenAsk(
        user=user,
        role="operator" if role == "operator" else "owner",
        expires_in_s=expires_in_s,
    )
    # The file comes first: a token that nobody can read would stay valid for ever.
    with _private(path) as file, client() as api:
        made = api.create_token(ask)
        if made.token is UNSET:
            fail(
                f"the answer got lost: run `xcecli token revoke {made.id}`, then try again", REFUSED
            )
        os.write(file, f"{made.token}\n".encode())
    say(f"token {made.id} is in {path}; use it with: export XCE_TOKEN_FILE={path}")
    print_one(structs.replace(made, token=UNSET), output, COLUMNS)


@token.command("list")
@click.option("--user", help="Only this user's.")
@click.option("--role", type=NAMES, help="owner, operator, job.")
@click.option("--state", type=NAMES, help="valid, expired, revoked.")
@view_options
def list_tokens(
    user: str | None, role: list[str] | None, state: list[str] | None, view: View
) -> None:
    """List your tokens; operators see everybody's."""
    filters = {"user": user, "role": joined(role), "state": joined(state)}
    view.many(COLUMNS, lambda api: api.tokens(**filters))


@token.command()
@click.argument("token_id", metavar="TOKEN", type=ID)
def revoke(token_id: int) -> None:
    """Make the token with the id TOKEN useless, at once and for good."""
    with client() as api:
        api.revoke_token(token_id)
    say(f"token {token_id} is revoked")


@contextmanager
def _private(path: Path) -> Iterator[int]:
    """A new file that only its owner can read; gone again where what it is for fails."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--file") from error
    try:
        yield file
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(file)
