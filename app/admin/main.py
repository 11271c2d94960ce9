"""The program `xce`: finds the command, and imports only that one's module."""

import importlib
import sys

import click

#: The commands, in the order of the help; each is `command` in the module of its name here.
NAMES = (
    "up",
    "demo",
    "migrate",
    "user",
    "token",
    "host",
    "login",
    "setting",
    "controller",
    "worker",
    "check",
    "restore",
    "bench",
)


class Programs(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        found = importlib.import_module(f"app.admin.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Programs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="xce", message="%(version)s")
def xce() -> None:
    """The daemons of xce, and what an administrator does over the database.

    The database is named by XCE_DATABASE_URL; its password comes from a passfile= in the URL or
    from PGPASSFILE.
    """


def main() -> None:
    """Run `xce`; what goes wrong for a known reason is said on stderr in one line."""
    try:
        xce(prog_name="xce")
    except Exception as error:
        from app.admin.complaints import known_errors

        cause = error
        while isinstance(cause, ExceptionGroup) and len(cause.exceptions) == 1:
            # A daemon's parts fail together.
            cause = cause.exceptions[0]
        if not isinstance(cause, known_errors()):
            raise
        click.echo(f"xce: {cause}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
