"""What the screens show, made of the API's answers alone."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from app.wire.hosts import Host
from app.wire.jobs import Job
from app.wire.resizes import Resize
from tui.spelling import NOTHING, age, literal, or_nothing
from tui.widths import width_of


class Column(Struct, frozen=True):
    """A heading. A column with `least` may be made narrower, down to that many cells."""

    name: str
    is_number: bool = False
    least: int | None = None


class Row(Struct, frozen=True, gc=False):
    """A line of a table; `words` is what a filter looks at, `owner` whose it is."""

    key: int
    cells: tuple[str, ...]
    words: str
    owner: str | None = None


class Sheet(Struct, frozen=True):
    """A table with all its rows; `widths` has room for each, `tally` counts them by state."""

    rows: tuple[Row, ...]
    widths: tuple[int, ...]
    tally: str


class Answers(Struct, frozen=True):
    """One look at the cluster at the API's time `at`; `ended` are jobs that were seen to end."""

    at: datetime
    hosts: list[Host]
    jobs: list[Job]
    ended: list[Job]
    requests: list[Resize]


class Sheets(Struct, frozen=True):
    """The three tables of a look."""

    hosts: Sheet
    jobs: Sheet
    requests: Sheet


HOST_COLUMNS = (
    *(Column("name", least=8), Column("state"), Column("cpus", is_number=True)),
    *(Column("mem_mib", is_number=True), Column("gpus", is_number=True)),
    *(Column("jobs", is_number=True), Column("seen", is_number=True), Column("reason", least=6)),
)
JOB_COLUMNS = (
    *(Column("id", is_number=True), Column("name", least=10), Column("owner", least=6)),
    *(Column("state"), Column("tasks", is_number=True), Column("min..max", is_number=True)),
    *(Column("wanted", is_number=True), Column("age", is_number=True), Column("reason", least=8)),
)
REQUEST_COLUMNS = (
    *(Column("id", is_number=True), Column("job_id", is_number=True), Column("kind")),
    *(Column("state"), Column("tasks_asked", is_number=True), Column("age", is_number=True)),
    *(Column("waits_on"), Column("reason", least=8), Column("why", least=6)),
)
#: Hosts that somebody has to look after come first.
_HOST_ORDER = ("lost", "down", "draining", "joining", "up")


def sheets(answers: Answers) -> Sheets:
    """The tables: hosts that need somebody and newest jobs first, the oldest request first."""
    return Sheets(host_sheet(answers), job_sheet(answers), request_sheet(answers))


def host_sheet(answers: Answers) -> Sheet:
    """`jobs` counts the jobs that the caller sees there; the API gives no number of tasks."""
    jobs = Counter(name for job in answers.jobs for name in job.hosts)
    ordered = sorted(answers.hosts, key=lambda host: (_HOST_ORDER.index(host.state), host.id))
    rows = [_host_row(host, jobs[host.name], answers.at) for host in ordered]
    return _sheet(HOST_COLUMNS, rows, (host.state for host in ordered))


def job_sheet(answers: Answers) -> Sheet:
    """`wanted` is the size that its open requests lead to."""
    requests = requests_by_job(answers.requests)
    jobs = sorted([*answers.jobs, *answers.ended], key=lambda job: -job.id)
    rows = [_job_row(job, requests.get(job.id, ()), answers.at) for job in jobs]
    return _sheet(JOB_COLUMNS, rows, (job.state for job in jobs))


def request_sheet(answers: Answers) -> Sheet:
    jobs = {job.id: job for job in answers.jobs}
    rows = [_request_row(one, jobs.get(one.job_id), answers.at) for one in answers.requests]
    return _sheet(REQUEST_COLUMNS, rows, (one.state for one in answers.requests))


def chosen(sheet: Sheet, *, words: str, owner: str | None) -> Sequence[Row]:
    """The rows in which all words occur, and which are the owner's where one is named."""
    wanted = words.casefold().split()
    if not wanted and owner is None:
        return sheet.rows
    return [
        row
        for row in sheet.rows
        if (owner is None or row.owner == owner) and all(word in row.words for word in wanted)
    ]


def title(name: str, sheet: Sheet, *, shown: int, words: str, owner: str | None) -> str:
    """How many there are and in which states; with a filter also how many of them are shown."""
    total = len(sheet.rows)
    found = f"{name}  {total}: {sheet.tally}" if total else f"{name}  none"
    why = [f"with “{literal(words)}”"] if words else []
    why += [f"of {literal(owner)}"] if owner is not None else []
    return f"{found}  | showing {shown} {' '.join(why)}" if why else found


def requests_by_job(requests: Iterable[Resize]) -> dict[int, list[Resize]]:
    found: dict[int, list[Resize]] = defaultdict(list)
    for request in requests:
        found[request.job_id].append(request)
    return found


def wanted_tasks(job: Job, requests: Iterable[Resize]) -> int:
    """The size after what is asked for: what is committed or leaves already counts in `tasks`."""
    size = job.tasks
    for request in requests:
        if request.kind == "shrink":
            size -= request.tasks_asked if request.state == "pending" else 0
        elif request.state in {"pending", "placed"}:
            size += request.tasks_max
    return max(size, 0)


def newly_ended(before: Answers | None, jobs: Iterable[Job]) -> list[int]:
    """The ids of jobs that were open at the last look and are not any more."""
    if before is None:
        return []
    return sorted({job.id for job in before.jobs} - {job.id for job in jobs})


def _host_row(host: Host, jobs: int, now: datetime) -> Row:
    cells = (
        literal(host.name),
        host.state,
        _use(host.cpus_used, host.cpus_held, host.cpus),
        _use(host.mem_mib_used, host.mem_mib_held, host.mem_mib),
        _use(host.gpus_used, host.gpus_held, host.gpus),
        str(jobs),
        age(host.last_seen_at, now),
        or_nothing(host.reason),
    )
    labels = " ".join(f"{name}={value}" for name, value in host.labels.items())
    return Row(host.id, cells, _words(*cells, labels))


def _job_row(job: Job, requests: Sequence[Resize], now: datetime) -> Row:
    wanted = wanted_tasks(job, requests)
    has_ended = job.ended_at is not None
    cells = (
        str(job.id),
        or_nothing(job.name),
        literal(job.owner),
        job.state,
        str(job.tasks),
        f"{job.min_tasks}..{job.max_tasks}",
        NOTHING if has_ended or wanted == job.tasks else str(wanted),
        age(job.submitted_at, now),
        _why(job, requests),
    )
    return Row(job.id, cells, _words(*cells, *job.hosts, job.project, job.queue), job.owner)


def _why(job: Job, requests: Sequence[Resize]) -> str:
    """The job's own reason, else how it ended, else what its oldest open request waits for."""
    if job.reason is not None:
        return literal(job.reason)
    if job.exit_code is not None:
        return f"exit_code {job.exit_code}"
    if job.held:
        return "held"
    waiting = next((one.reason for one in requests if one.reason is not None), None)
    return or_nothing(waiting)


def _request_row(request: Resize, job: Job | None, now: datetime) -> Row:
    cells = (
        str(request.id),
        str(request.job_id),
        request.kind,
        request.state,
        str(request.tasks_asked),
        age(request.created_at, now),
        literal(request.next.waits_on),
        or_nothing(request.reason),
        literal(request.next.why),
    )
    name = (job.name or "") if job else ""
    owner = job.owner if job else None
    return Row(request.id, cells, _words(*cells, *request.hosts, name, owner or ""), owner)


def _use(used: int, held: int, total: int) -> str:
    if not total:
        return NOTHING
    return f"{used}+{held}/{total}" if held else f"{used}/{total}"


def _words(*texts: str) -> str:
    return " ".join(texts).casefold()


def _sheet(columns: Sequence[Column], rows: Sequence[Row], states: Iterable[str]) -> Sheet:
    widths = [width_of(column.name) for column in columns]
    for row in rows:
        widths = list(map(max, widths, map(width_of, row.cells)))
    tally = ", ".join(f"{count} {state}" for state, count in Counter(states).most_common())
    return Sheet(tuple(rows), tuple(widths), tally)
