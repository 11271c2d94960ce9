"""What a tick sees: hosts, asking jobs and their requests at one moment of the database."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from app.model.capacity import Resources

ExistingHosts = Literal["prefer", "exclude", "any"]


class Span(Struct, frozen=True, gc=False):
    """How the tasks of a job may be spread: all of them, not only those that are new."""

    per_host: int | None = None
    is_one_host: bool = False


class Constraint(Struct, frozen=True, gc=False):
    """A label that a host must carry; with `values`, one of them."""

    label: str
    values: tuple[str, ...] = ()

    def is_met_by(self, labels: tuple[tuple[str, str], ...]) -> bool:
        return any(
            name == self.label and (not self.values or value in self.values)
            for name, value in labels
        )


class Host(Struct, frozen=True, gc=False):
    """A host that is configured: joining, up, draining or lost.

    `free` is what neither tasks nor holds use. `is_schedulable`: up, without a drain wish, and its
    worker was heard from within the silent time. `is_in_use`: not drained, nor to be: a lost one
    may come back by itself, a drained one only when an operator says so.
    """

    id: int
    name: str
    capacity: Resources
    free: Resources
    is_schedulable: bool = True
    is_in_use: bool = True
    labels: tuple[tuple[str, str], ...] = ()


class JobView(Struct, frozen=True, gc=False):
    """A job of which a request is pending or placed, with sums over its tasks, never the tasks.

    Of its open tasks `members` stay and `leaving` are stopping; `tasks_on` has both for each host,
    as (host id, members, leaving) ascending. Holds are with their requests. `firm_tasks` are
    running, on a host that is not lost or joining, and not of a committed grow that might be rolled
    back; they are counted only where a shrink waits. `unsettled_id` is its first committed request
    of which a task is not decided yet.
    """

    id: int
    version: int
    state: str
    min_tasks: int
    max_tasks: int
    resources: Resources
    members: int = 0
    leaving: int = 0
    tasks_on: tuple[tuple[int, int, int], ...] = ()
    firm_tasks: int = 0
    unsettled_id: int | None = None
    span: Span = Span()
    existing_hosts: ExistingHosts = "any"
    constraints: tuple[Constraint, ...] = ()
    hosts: tuple[str, ...] | None = None
    exclude_hosts: tuple[str, ...] = ()
    priority: int = 0
    held: bool = False
    begin_at: datetime | None = None


class RequestView(Struct, frozen=True, gc=False):
    """A start or grow that is pending or placed; `holds` are (host id, tasks), ascending.

    Its id is also its place in the line: ids are given in the order of acceptance.
    """

    id: int
    version: int
    job_id: int
    kind: Literal["start", "grow"]
    state: Literal["pending", "placed"]
    tasks_min: int
    tasks_max: int
    hosts: tuple[str, ...] | None = None
    exclude_hosts: tuple[str, ...] = ()
    existing_hosts: ExistingHosts | None = None
    reason: str | None = None
    deadline_at: datetime | None = None
    holds: tuple[tuple[int, int], ...] = ()


class ShrinkView(Struct, frozen=True, gc=False):
    """A pending shrink with the open tasks it names, as (host id, assigned, started) ascending.

    `named_running` of them run; `named_firm` of those count among the job's `firm_tasks`.
    """

    id: int
    version: int
    job_id: int
    named_on: tuple[tuple[int, int, int], ...]
    named_running: int = 0
    named_firm: int = 0
    reason: str | None = None
    deadline_at: datetime | None = None


class Snapshot(Struct, frozen=True, gc=False):
    """One moment. `taken` is the text of pg_current_snapshot(), `at` the database's clock then.

    Every tuple ascends by id. Jobs are those with a request here.
    """

    taken: str
    at: datetime
    hosts: tuple[Host, ...] = ()
    jobs: tuple[JobView, ...] = ()
    requests: tuple[RequestView, ...] = ()
    shrinks: tuple[ShrinkView, ...] = ()
