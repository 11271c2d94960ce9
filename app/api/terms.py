"""Turns what was asked into the complete terms that the database judges."""

from typing import Any

from app.api.problems import Refusal
from app.db.jobs import JobBody
from app.wire.fields import Range
from app.wire.jobs import JobSubmit, Span
from app.wire.resizes import ResizeAsk, ShrinkAsk


def job_body(ask: JobSubmit) -> JobBody:
    """A submitted job with every default filled in. Raises Refusal."""
    tasks = _range(ask.tasks, "$.tasks")
    return _checked(
        JobBody(
            name=ask.name,
            command=ask.command,
            head_command=ask.head_command,
            env=ask.env,
            cwd=ask.cwd,
            tasks_min=tasks.min,
            tasks=tasks.max,
            min_tasks=tasks.min if ask.min_tasks is None else ask.min_tasks,
            max_tasks=tasks.max if ask.max_tasks is None else ask.max_tasks,
            cpus=ask.cpus,
            mem_mib=ask.mem_mib,
            gpus=ask.gpus,
            span=_span(ask.span),
            existing_hosts=ask.existing_hosts,
            constraints=_constraints(ask),
            hosts=ask.hosts,
            exclude_hosts=ask.exclude_hosts,
            queue=ask.queue,
            project=ask.project,
            priority=ask.priority,
            begin_at=ask.begin_at,
            run_limit_s=ask.run_limit_s,
            grace_s=ask.grace_s,
            start_s=ask.start_s,
            on_host_loss=ask.on_host_loss,
            fence=ask.fence,
            loss_grace_s=ask.loss_grace_s,
            ends_when=ask.ends_when or ("head" if ask.head_command else "all"),
            on_task_failure=ask.on_task_failure,
            stdout=ask.stdout,
            stderr=ask.stderr,
        )
    )


def resize_terms(ask: ResizeAsk) -> dict[str, Any]:
    """The members of a ResizeCall that say what is asked for. Raises Refusal."""
    if [ask.grow, ask.shrink, ask.to].count(None) != 2:
        raise invalid("$", "give exactly one of grow, shrink and to")
    both = {"deadline_s": ask.deadline_s, "grace_s": ask.grace_s}
    _check_hosts(ask.hosts, ask.exclude_hosts)
    where = {
        "hosts": ask.hosts,
        "exclude_hosts": ask.exclude_hosts,
        "existing_hosts": ask.existing_hosts,
    }
    if ask.grow is not None:
        grow = _range(ask.grow, "$.grow")
        return both | where | {"kind": "grow", "min": grow.min, "max": grow.max}
    if ask.to is not None:
        return both | where | {"kind": "to", "to": ask.to, "at_once": True}
    for name in ("hosts", "exclude_hosts", "existing_hosts"):
        if getattr(ask, name):
            raise invalid(f"$.{name}", "this is for a grow; a shrink names hosts in shrink.hosts")
    return both | {"kind": "shrink", "at_once": True} | _shrink(ask.shrink or ShrinkAsk())


def invalid(path: str, what: str) -> Refusal:
    return Refusal("invalid", f"{what} at {path}", path=path)


def _shrink(ask: ShrinkAsk) -> dict[str, Any]:
    named = {
        name: value
        for name in ("count", "tasks", "hosts")
        if (value := getattr(ask, name)) is not None
    }
    if len(named) != 1:
        raise invalid("$.shrink", "give exactly one of count, tasks and hosts")
    for name, value in named.items():
        if name != "count" and len(set(value)) != len(value):
            raise invalid(f"$.shrink.{name}", "name each only once")
    return named


def _range(asked: int | Range, path: str) -> Range:
    found = Range(asked, asked) if isinstance(asked, int) else asked
    if found.min > found.max:
        raise invalid(path, "min is above max")
    return found


def _constraints(ask: JobSubmit) -> dict[str, list[str]]:
    return {
        label: [values] if isinstance(values, str) else values
        for label, values in ask.constraints.items()
    }


def _span(span: str | Span) -> Any:
    if isinstance(span, str):
        return span
    if (span.per_host is None) == (span.hosts is None):
        raise invalid("$.span", 'give "any", {"per_host": n} or {"hosts": 1}')
    return span


def _check_hosts(hosts: list[str] | None, exclude_hosts: list[str]) -> None:
    if hosts is not None and len(set(hosts)) != len(hosts):
        raise invalid("$.hosts", "name each only once")
    if hosts is not None and not set(hosts) - set(exclude_hosts):
        raise invalid("$.exclude_hosts", "it leaves none of the named hosts")


def _checked(body: JobBody) -> JobBody:
    for name, command in (("command", body.command), ("head_command", body.head_command)):
        if command and not command[0]:
            raise invalid(f"$.{name}[0]", "a program has a name")
    if body.min_tasks > body.tasks_min:
        raise invalid("$.min_tasks", f"it is above the tasks to start with, {body.tasks_min}")
    if body.max_tasks < body.tasks:
        raise invalid("$.max_tasks", f"it is below the tasks to start with, {body.tasks}")
    if body.cpus + body.mem_mib + body.gpus == 0:
        raise invalid("$.cpus", "a task needs something: cpus, mem_mib or gpus")
    _check_hosts(body.hosts, body.exclude_hosts)
    return body
