"""Tells a job's story to the database step by step, in one transaction: no daemon, no scheduler."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow, dict_row
from psycopg.types.json import Jsonb

JOB = {
    "name": None,
    "command": ["work"],
    "head_command": None,
    "env": {},
    "cwd": None,
    "tasks": 1,
    "tasks_min": 1,
    "min_tasks": 1,
    "max_tasks": 1,
    "cpus": 1,
    "mem_mib": 0,
    "gpus": 0,
    "span": "any",
    "existing_hosts": None,
    "constraints": {},
    "hosts": None,
    "exclude_hosts": [],
    "queue": "default",
    "project": "default",
    "priority": 0,
    "begin_at": None,
    "run_limit_s": None,
    "grace_s": 10,
    "start_s": 60,
    "on_host_loss": "requeue",
    "fence": None,
    "loss_grace_s": None,
    "ends_when": "all",
    "on_task_failure": "ignore",
    "stdout": None,
    "stderr": None,
}


class RefusedError(AssertionError):
    """A call was refused; `code` and `figures` say how."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{answer['code']}: {answer['detail']} {answer['figures']}")
        self.code: str = answer["code"]
        self.figures: Mapping[str, Any] = answer["figures"]


@dataclass
class Story:
    """Users, hosts and jobs by name, and every call a caller, leader or worker makes."""

    conn: Connection[TupleRow]
    hosts: dict[str, int] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    epoch: int = 0

    # -- reading -----------------------------------------------------------------------------

    def one(self, query: str, *values: Any) -> Any:
        row = self.conn.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self.conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), values).fetchall()

    def job(self, job: int) -> dict[str, Any]:
        return self.rows("select * from xce.job where id = %s", job)[0]

    def request(self, request: int) -> dict[str, Any]:
        return self.rows("select * from xce.resize_request where id = %s", request)[0]

    def tasks(self, job: int) -> dict[int, str]:
        """State of each task of the current attempt by index; `how` it ended where it did."""
        found = self.rows(
            """
            select t.index, coalesce(t.how, t.state) as is_now
              from xce.task t
              join xce.job j on j.id = t.job_id and j.attempt = t.attempt
             where j.id = %s
             order by t.index
            """,
            job,
        )
        return {row["index"]: row["is_now"] for row in found}

    def events(self, lifecycle: str, row: int) -> list[str]:
        found = self.rows(
            "select event from xce.history where lifecycle = %s and row_id = %s order by version",
            lifecycle,
            row,
        )
        return [row["event"] for row in found]

    # -- the cast ----------------------------------------------------------------------------

    def user(self, name: str = "ann", *, is_operator: bool = False) -> int:
        if name not in self.users:
            self.users[name] = self.one("select xce.add_user(%s, %s, null)", name, is_operator)
        return self.users[name]

    def host(self, name: str, cpus: int = 4) -> str:
        """A host that is up, with a worker that has registered and reconciled."""
        login = f"story_{name}"
        if not self.one("select exists (select from pg_roles where rolname = %s)", login):
            self.conn.execute(f'create role "{login}" login in role xce_worker'.encode())
        self.hosts[name] = self.one(
            "select xce.add_host(%s, %s, 1000, 0, '{}', %s)", name, cpus, login
        )
        self.register(name)
        self.fetch(name)
        return name

    # -- callers -----------------------------------------------------------------------------

    def call(self, user: str, path: str, **members: Any) -> dict[str, Any]:
        name = members.pop("as_user", user)
        base = {
            "user_id": self.user(name),
            "is_operator": self.one(
                "select is_operator from xce.user_account where id = %s", self.user(name)
            ),
            "key": None,
            "method": "POST",
            "path": path,
            "body_sha256": "0",
        }
        return base | members

    def submit(
        self, tasks: int = 1, *, user: str = "ann", key: str | None = None, **members: Any
    ) -> int:
        body = (
            JOB
            | {"tasks": tasks, "tasks_min": tasks, "max_tasks": max(tasks, JOB["max_tasks"])}
            | members
        )
        call = self.call(user, "/v1/jobs", key=key, body=body)
        return accepted(self.one("select xce.submit_job(%s)", Jsonb(call)))

    def grow(
        self, job: int, tasks: int, *, least: int | None = None, user: str = "ann", **members: Any
    ) -> int:
        members = {
            "min": tasks if least is None else least,
            "max": tasks,
            "hosts": None,
            "exclude_hosts": [],
        } | members
        return self._resize(job, "grow", user, members)

    def resize_to(self, job: int, size: int, *, user: str = "ann", **members: Any) -> int:
        return self._resize(job, "to", user, {"to": size} | members)

    def shrink(self, job: int, *, user: str = "ann", **members: Any) -> int:
        return self._resize(job, "shrink", user, members)

    def _resize(self, job: int, kind: str, user: str, members: dict[str, Any]) -> int:
        defaults = {
            "job_id": job,
            "if_match": None,
            "origin": "owner",
            "kind": kind,
            "deadline_s": None,
        }
        call = self.call(
            user, f"/v1/jobs/{job}/resizes", **(defaults | {"grace_s": None} | members)
        )
        return accepted(self.one("select answer from xce.ask_resizes(%s)", Jsonb([call])))

    def cancel(
        self, request: int, count: int | None = None, *, user: str = "ann", **members: Any
    ) -> int:
        call = self.call(
            user, f"/v1/resizes/{request}/cancel", request_id=request, count=count, **members
        )
        return accepted(self.one("select answer from xce.cancel_requests(%s)", Jsonb([call])))

    def kill(self, job: int, *, user: str = "ann", **members: Any) -> int:
        call = self.call(
            user,
            f"/v1/jobs/{job}/kill",
            verb="kill",
            job_id=job,
            if_match=None,
            reason="killed",
            **members,
        )
        return accepted(self.one("select answer from xce.command_jobs(%s)", Jsonb([call])))

    def command(self, verb: str, job: int, *, user: str = "ann", **members: Any) -> int:
        """Requeue, hold or release."""
        path = f"/v1/jobs/{job}/{verb}"
        call = self.call(user, path, verb=verb, job_id=job, if_match=None, **members)
        return accepted(self.one("select answer from xce.command_jobs(%s)", Jsonb([call])))

    def wish(self, host: str, wish: str) -> int:
        self.user("root", is_operator=True)
        call = self.call("root", f"/v1/hosts/{host}/{wish}", name=host, wish=wish)
        return accepted(self.one("select xce.wish_host(%s)", Jsonb(call)))

    def operate(self, routine: str, host: str, *, user: str = "root", **members: Any) -> int:
        """Put, retire or remove a host."""
        self.user("root", is_operator=True)
        call = self.call(user, f"/v1/hosts/{host}/{routine}", name=host, **members)
        return accepted(self.one(f"select xce.{routine}(%s)", Jsonb(call)))

    # -- the leader --------------------------------------------------------------------------

    def lead(self) -> int:
        row = self.conn.execute("select is_leader, epoch from xce.take_lease('story')").fetchone()
        assert row is not None
        assert row[0]
        self.epoch = row[1]
        return self.epoch

    def apply(self, *decisions: Mapping[str, Any]) -> list[str | None]:
        """Refusal codes in the order of the decisions; None where one was accepted."""
        if not self.epoch:
            self.lead()
        rows = self.conn.execute(
            "select code from xce.apply_plan(%s, %s) order by ordinal",
            (self.epoch, Jsonb({"decisions": list(decisions), "policy": {}})),
        ).fetchall()
        return [row[0] for row in rows]

    def placing(
        self, request: int, where: Mapping[str, int], *, commit: bool = True
    ) -> dict[str, Any]:
        row = self.request(request)
        return {
            "do": "place",
            "request_id": request,
            "request_version": row["version"],
            "job_version": self.job(row["job_id"])["version"],
            "hosts": [[self.hosts[name], n] for name, n in where.items()],
            "commit": commit,
        }

    def deciding(self, do: str, request: int, **members: Any) -> dict[str, Any]:
        return {
            "do": do,
            "request_id": request,
            "request_version": self.request(request)["version"],
        } | members

    def place(self, request: int, where: Mapping[str, int], *, commit: bool = True) -> None:
        assert self.apply(self.placing(request, where, commit=commit)) == [None]

    def stop(self, request: int) -> None:
        assert self.apply(self.deciding("stop", request)) == [None]

    # -- workers -----------------------------------------------------------------------------

    @contextmanager
    def worker_of(self, host: str) -> Iterator[None]:
        self.conn.execute(f'set session authorization "story_{host}"'.encode())
        yield
        self.conn.execute("reset session authorization")

    def register(
        self, host: str, live: Iterable[Mapping[str, Any]] = (), boot: str = "boot-1"
    ) -> dict[str, Any]:
        with self.worker_of(host):
            answer = self.one("select xce.worker_register(%s, '0', %s)", boot, Jsonb(list(live)))
        self.incarnations[host] = answer["incarnation"]
        return dict(answer)

    def fetch(self, host: str, *, is_clear: bool = True) -> list[dict[str, Any]]:
        with self.worker_of(host):
            answer = self.one("select xce.worker_fetch(%s, %s)", self.incarnations[host], is_clear)
        return answer["tasks"] if not answer["stale"] else []

    def report(self, host: str, *reports: Mapping[str, Any]) -> dict[str, Any]:
        with self.worker_of(host):
            return dict(
                self.one(
                    "select xce.worker_report(%s, %s)",
                    self.incarnations[host],
                    Jsonb(list(reports)),
                )
            )

    def up(self, job: int, *indices: int) -> None:
        for index in indices:
            self.report(self.host_of(job, index), self.saying(job, index, "up"))

    def gone(self, job: int, index: int, exit_code: int | None = 0, **facts: Any) -> dict[str, Any]:
        report = {
            "execed": True,
            "exit_code": exit_code,
            "signal": None,
            "lost": False,
            "reason": None,
        } | facts
        return self.report(self.host_of(job, index), self.saying(job, index, "gone", **report))

    def saying(self, job: int, index: int, event: str, **facts: Any) -> dict[str, Any]:
        attempt = facts.pop("attempt", self.job(job)["attempt"])
        return {"job_id": job, "attempt": attempt, "index": index, "event": event} | facts

    def host_of(self, job: int, index: int) -> str:
        return str(
            self.one(
                """
                select h.name
                  from xce.task t
                  join xce.host h on h.id = t.host_id
                 where t.job_id = %s and t.index = %s
                 order by t.attempt desc
                 limit 1
                """,
                job,
                index,
            )
        )

    # -- shortcuts ---------------------------------------------------------------------------

    def start_of(self, job: int) -> int:
        return int(
            self.one(
                "select max(id) from xce.resize_request where job_id = %s and kind = 'start'", job
            )
        )

    def running_job(self, where: Mapping[str, int], **members: Any) -> int:
        """A job whose tasks run on the hosts named, in that order."""
        tasks = sum(where.values())
        job = self.submit(tasks, **members)
        self.place(self.start_of(job), where)
        for name in where:
            self.fetch(name)
        self.up(job, *range(tasks))
        return job

    def grown(self, job: int, where: Mapping[str, int], **members: Any) -> int:
        """A grow of a running job, all of whose tasks came up."""
        request = self.grow(job, sum(where.values()), **members)
        self.place(request, where)
        for name in where:
            self.fetch(name)
        self.up(job, *self.request(request)["task_indices"])
        return request

    def free(self, host: str) -> int:
        return int(
            self.one("select cpus - cpus_used - cpus_held from xce.host where name = %s", host)
        )


def accepted(answer: Mapping[str, Any]) -> int:
    if not answer["ok"]:
        raise RefusedError(answer)
    return int(answer["id"])
