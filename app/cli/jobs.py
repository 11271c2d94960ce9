"""`xcecli submit`, `jobs`, `job`, `kill`, `tasks`."""

from typing import Any

import click

from app.cli.output import output_option, print_one
from app.cli.session import client
from app.cli.values import (
    AMOUNT,
    COMMAND,
    COUNT,
    ID,
    MOMENT,
    NAMES,
    PAIR,
    RANGE,
    SECONDS,
    SOME_SECONDS,
    SPAN,
    VARIABLE,
    if_match,
    joined,
)
from app.cli.viewing import View, view_options
from app.cli.waiting import end, wait_options, waited

ENDED = ("done", "exited")
LISTED = (
    "id",
    "name",
    "state",
    "owner",
    "tasks",
    "running_tasks",
    "min_tasks",
    "max_tasks",
    "hosts",
    "reason",
)
SHOWN = (
    *("id", "name", "state", "reason", "owner", "project", "queue", "command", "tasks"),
    *("running_tasks", "submitted_tasks", "min_tasks", "max_tasks", "hosts", "generation"),
    *("attempt", "exit_code", "cpus", "mem_mib", "gpus", "span", "submitted_at", "started_at"),
    "ended_at",
    "held",
    "begin_at",
    "run_limit_s",
)
TASKS = (
    *("index", "attempt", "host", "state", "how", "exit_code", "signal", "cpu_used_s"),
    *("mem_peak_mib", "started_at", "ended_at"),
)


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--name", help="A name of your choice.")
@click.option("--tasks", type=RANGE, help="How many tasks to start: N, or MIN,MAX for what fits.")
@click.option("--min-tasks", type=COUNT, help="No shrink goes below (default: tasks).")
@click.option("--max-tasks", type=COUNT, help="No grow goes above (default: tasks).")
@click.option("--cpus", type=AMOUNT, help="For each task (default: 1).")
@click.option("--mem-mib", type=AMOUNT, help="For each task; 0 is not counted.")
@click.option("--gpus", type=AMOUNT, help="For each task.")
@click.option("--span", type=SPAN, help="any, per_host:N (at most), or hosts:1 (all on one).")
@click.option("--existing-hosts", type=click.Choice(["prefer", "exclude", "any"]))
@click.option("--constraints", type=PAIR, multiple=True, help="LABEL=VALUE; may be repeated.")
@click.option("--hosts", type=NAMES, help="Only these, separated by commas.")
@click.option("--exclude-hosts", type=NAMES, help="None of these.")
@click.option(
    "--env",
    type=VARIABLE,
    multiple=True,
    help="NAME=VALUE, or NAME for the value it has here; may be repeated.",
)
@click.option("--cwd", help="An absolute path (default: the run folder).")
@click.option("--head-command", type=COMMAND, help="For task 0, instead of COMMAND.")
@click.option("--queue")
@click.option("--project")
@click.option("--priority", type=int)
@click.option("--begin-at", type=MOMENT, help="Not before this time: 2026-12-01T08:00:00Z.")
@click.option("--run-limit-s", type=SOME_SECONDS, help="End it after running so long.")
@click.option("--grace-s", type=SECONDS, help="From TERM to KILL (default: 10).")
@click.option(
    "--start-s", type=SOME_SECONDS, help="Its tasks have to come up within (default: 60)."
)
@click.option("--on-host-loss", type=click.Choice(["requeue", "shrink", "exit"]))
@click.option("--fence", type=click.Choice(["stop", "keep"]))
@click.option("--loss-grace-s", type=SECONDS)
@click.option("--ends-when", type=click.Choice(["all", "head"]))
@click.option("--on-task-failure", type=click.Choice(["ignore", "end_job"]))
@click.option("--stdout", help="A path pattern with %j job, %a attempt, %t task, %h host.")
@click.option("--stderr", help="The same.")
@click.option(
    "--until",
    type=click.Choice(["running", "ended"]),
    default="ended",
    show_default=True,
    help="What --wait waits for.",
)
@wait_options
@output_option
def submit(
    command: tuple[str, ...],
    until: str,
    wait: bool,
    timeout_s: float | None,
    output: str,
    **members: Any,
) -> None:
    """Submit COMMAND as a job and print it.

    Options end where COMMAND begins: `xcecli submit --tasks 2 --max-tasks 8 sleep 60`.
    """
    from app.wire.jobs import JobSubmit

    for name in ("env", "constraints"):
        members[name] = dict(members[name])
    given = {name: value for name, value in members.items() if value not in (None, {})}
    with client() as api:
        job = api.submit(JobSubmit(command=list(command), **given))
        wanted = ENDED if until == "ended" else ("running", *ENDED)
        is_in_time = True
        if wait:
            job, is_in_time = waited(
                job,
                again=lambda: api.job(job.id),
                until=lambda now: now.state in wanted,
                timeout_s=timeout_s,
            )
    print_one(job, output, SHOWN)
    if wait:
        what = f"job {job.id} is {job.state}" + (f" ({job.reason})" if job.reason else "")
        end(is_in_time, is_good=job.state != "exited", what=what)


@click.command("jobs")
@click.option("--state", type=NAMES, help="pending, running, stopping, done, exited.")
@click.option("--name", help="Only jobs of this name.")
@click.option("--owner", help="Only this user's (operators see everybody's).")
@click.option("--project", help="Only jobs of this project.")
@click.option("--queue", help="Only jobs in this queue.")
@view_options
def list_jobs(state: list[str] | None, view: View, **filters: str | None) -> None:
    """List jobs, oldest first."""
    view.many(LISTED, lambda api: api.jobs(state=joined(state), **filters))


@click.command("job")
@click.argument("job_id", metavar="JOB", type=ID)
@view_options
def show_job(job_id: int, view: View) -> None:
    """Show JOB."""
    view.one(SHOWN, lambda api: api.job(job_id))


@click.command()
@click.argument("job_id", metavar="JOB", type=ID)
@if_match
@wait_options
@output_option
def kill(
    job_id: int, if_match: int | None, wait: bool, timeout_s: float | None, output: str
) -> None:
    """Kill JOB: its tasks get TERM, and KILL after their grace."""
    with client() as api:
        job, is_in_time = api.kill(job_id, if_match=if_match), True
        if wait:
            job, is_in_time = waited(
                job,
                again=lambda: api.job(job_id),
                until=lambda now: now.state in ENDED,
                timeout_s=timeout_s,
            )
    print_one(job, output, SHOWN)
    end(is_in_time, is_good=True, what=f"job {job.id} is {job.state}")


@click.command("tasks")
@click.argument("job_id", metavar="JOB", type=ID)
@click.option("--all", "is_all", is_flag=True, help="Ended ones too.")
@click.option("--state", type=NAMES, help="assigned, starting, running, stopping, ended.")
@click.option("--host", help="Only those on this host.")
@view_options
def list_tasks(
    job_id: int, is_all: bool, state: list[str] | None, host: str | None, view: View
) -> None:
    """List the tasks of JOB."""
    filters = {"state": joined(state), "host": host}
    view.many(TASKS, lambda api: api.tasks(job_id, is_all=is_all, **filters))
