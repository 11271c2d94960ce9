"""`xcecli`: for owners and operators, over REST only, quick to start."""

import sys
from importlib import import_module
from typing import Any

import click

#: name: (module, attribute, what --help says). The modules are imported when they are run, so that
#: `--help` costs little.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "submit": ("jobs", "submit", "Submit a job."),
    "jobs": ("jobs", "list_jobs", "List jobs."),
    "job": ("jobs", "show_job", "Show one job."),
    "kill": ("jobs", "kill", "Kill a job."),
    "requeue": ("commands", "requeue", "Stop a job and run it again."),
    "hold": ("commands", "hold", "Place nothing new of a job."),
    "release": ("commands", "release", "End the hold of a job."),
    "tasks": ("jobs", "list_tasks", "List a job's tasks."),
    "logs": ("logs", "logs", "What a job's tasks have written, or write."),
    "resize": ("resizes", "resize", "Grow and shrink jobs; list, show and cancel requests."),
    "history": ("reports", "history", "What happened to a job or a request."),
    "usage": ("reports", "usage", "What a job, or all of them in a time, were given."),
    "allocation": ("reports", "allocation", "The tasks a job has, or had at a moment."),
    "events": ("events", "events", "What happens, in the order of the commits."),
    "hosts": ("hosts", "list_hosts", "List hosts."),
    "host": ("hosts", "host", "Show hosts; drain, resume, vouch for and remove them."),
    "settings": ("settings", "list_settings", "List what all daemons go by."),
    "setting": ("settings", "change_setting", "Change a setting."),
    "token": ("tokens", "token", "Make, list and revoke tokens."),
    "tui": ("terminal", "tui", "Hosts, jobs and requests on one screen."),
    "completion": ("completion", "completion", "Print what a shell needs to complete this."),
}


class LazyGroup(click.Group):
    """Knows its commands by name; imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"app.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, _, told) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="xce", prog_name="xcecli")
def cli() -> None:
    """Jobs that grow and shrink while they run.

    The API is found at XCE_API_URL; XCE_TOKEN, or the file that XCE_TOKEN_FILE names, says who you
    are. Results go to stdout, everything else to stderr.

    Exit codes: 0 ok, 1 what was waited for ended badly, 2 usage, 3 not found, 4 refused,
    5 conflict, 6 unavailable, 7 not allowed, 124 timed out.
    """


def main() -> None:
    """The program; never returns."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Exit code of one command line."""
    try:
        code: Any = cli.main(arguments, prog_name="xcecli", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        return 130
    except BrokenPipeError:
        # Whoever read our stdout has seen enough.
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
