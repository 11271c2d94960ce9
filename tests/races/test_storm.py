"""32 clients, four workers and changing leaders at once: nobody deadlocks, and everything ends."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from app.db.doorbell import Doorbell
from app.db.errors import EpochOver, Unavailable
from app.db.pg_store import PgStore
from app.model import Policy
from app.scheduling import tick
from tests.support.cluster import Database
from tests.support.rules import broken_rules
from tests.support.story import JOB, Story

CLIENTS = 32
HOSTS = ("h1", "h2", "h3", "h4")
OPERATIONS_MAX = 150
STORM_S = 6.0
QUIET_S = 15.0
SEED = 20261201
#: A first call that raced another with its key, and an incarnation that ended meanwhile: answers.
EXPECTED = {"23505", "40001", "RZ410"}


@dataclass
class Sky:
    """What everybody in the storm shares."""

    database: Database
    story: Story
    codes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    epoch: int = 0
    reigns: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)
    is_quiet: threading.Event = field(default_factory=threading.Event)

    def ask(self, conn: Connection[TupleRow], query: str, *values: Any) -> Any:
        """All rows, or none where the database raised; every error is counted."""
        try:
            return conn.execute(query.encode(), values).fetchall()
        except psycopg.Error as error:
            self.errors[error.sqlstate or type(error).__name__] += 1
            if error.sqlstate not in EXPECTED:
                self.messages.append(str(error))
            return []

    def count(self, verb: str, answers: list[Any]) -> None:
        for answer in answers:
            self.codes[f"{verb} {'ok' if answer['ok'] else answer['code']}"] += 1


# -- clients ---------------------------------------------------------------------------------


class Client:
    """One caller that asks for anything, in batches whose jobs come in no order."""

    def __init__(self, sky: Sky, number: int) -> None:
        self._sky = sky
        self._dice = random.Random(SEED + number)
        self._conn = sky.database.connect()

    def run(self) -> None:
        verbs: list[tuple[Callable[[], None], int]] = [
            (self.submit, 4),
            (self.grow, 26),
            (self.shrink, 20),
            (self.resize_to, 12),
            (self.cancel, 18),
            (self.kill, 2),
            (self.requeue, 2),
            (self.hold, 3),
            (self.release, 6),
            (self.drain, 3),
            (self.put, 1),
            (self.retire, 1),
        ]
        acts, weights = zip(*verbs, strict=True)
        with self._conn:
            for _ in range(OPERATIONS_MAX):
                if self._sky.is_over.is_set():
                    break
                self._dice.choices(acts, weights)[0]()

    def submit(self) -> None:
        tasks = self._dice.randint(1, 3)
        body = JOB | {"tasks": tasks, "tasks_min": 1, "max_tasks": 6, "start_s": 2, "grace_s": 0}
        policy = self._dice.choice(["requeue", "shrink", "exit"])
        body |= {"on_host_loss": policy, "loss_grace_s": 0}
        call = self._call("/v1/jobs", body=body, key=self._key())
        for (answer,) in self._sky.ask(self._conn, "select xce.submit_job(%s)", Jsonb(call)):
            self._sky.count("submit", [answer])

    def grow(self) -> None:
        self._resize(
            lambda: (
                {"kind": "grow", "min": 1, "max": self._dice.randint(1, 3), "hosts": None}
                | {"exclude_hosts": [], "deadline_s": self._dice.choice([None, 0.05])}
            )
        )

    def shrink(self) -> None:
        by_count = {"count": self._dice.randint(1, 2)}
        by_name = {"tasks": [self._dice.randint(1, 4)]}
        by_host = {"hosts": [self._dice.choice(HOSTS)]}
        self._resize(
            lambda: (
                {"kind": "shrink", "deadline_s": None, "at_once": self._dice.random() < 0.5}
                | self._dice.choice([by_count, by_name, by_host])
            )
        )

    def resize_to(self) -> None:
        self._resize(
            lambda: (
                {"kind": "to", "to": self._dice.randint(1, 6), "hosts": None, "exclude_hosts": []}
                | {"deadline_s": None, "at_once": self._dice.random() < 0.5}
            )
        )

    def cancel(self) -> None:
        found = self._sky.ask(
            self._conn,
            "select id from xce.resize_request where is_open and kind <> 'start'"
            " order by random() limit 3",
        )
        calls = [
            self._call(
                f"/v1/resizes/{id}/cancel", request_id=id, count=self._dice.choice([None, 1])
            )
            for (id,) in found
        ]
        self._batch("cancel_requests", calls)

    def kill(self) -> None:
        self._command("kill", reason="killed")

    def requeue(self) -> None:
        self._command("requeue")

    def hold(self) -> None:
        self._command("hold")

    def release(self) -> None:
        self._command("release")

    def drain(self) -> None:
        host, wish = self._dice.choice(HOSTS), self._dice.choice(["drain", "resume", "resume"])
        call = self._call(f"/v1/hosts/{host}/{wish}", name=host, wish=wish, is_operator=True)
        for (answer,) in self._sky.ask(self._conn, "select xce.wish_host(%s)", Jsonb(call)):
            self._sky.count("wish", [answer])

    def put(self) -> None:
        size = {"cpus": self._dice.randint(2, 30), "mem_mib": 1000, "gpus": 0, "labels": {}}
        self._operate("put_host", login="nobody", size=size)

    def retire(self) -> None:
        self._operate("retire_host", confirm_dead=True)

    def _operate(self, routine: str, **members: Any) -> None:
        host = self._dice.choice(HOSTS)
        call = self._call(f"/v1/hosts/{host}", name=host, is_operator=True, **members)
        for (answer,) in self._sky.ask(self._conn, f"select xce.{routine}(%s)", Jsonb(call)):
            self._sky.count(routine, [answer])

    def _command(self, verb: str, **members: Any) -> None:
        members |= {"verb": verb, "if_match": None}
        jobs = self._some_jobs(2)
        self._batch(
            "command_jobs", [self._call(f"/v1/jobs/{job}", job_id=job, **members) for job in jobs]
        )

    def _resize(self, made: Callable[[], dict[str, Any]]) -> None:
        calls = [
            self._call(f"/v1/jobs/{job}/resizes", key=self._key(), job_id=job)
            | {"if_match": None, "origin": "owner", "grace_s": 0}
            | made()
            for job in self._some_jobs(4)
        ]
        self._batch("ask_resizes", calls)

    def _batch(self, function: str, calls: list[dict[str, Any]]) -> None:
        rows = self._sky.ask(self._conn, f"select answer from xce.{function}(%s)", Jsonb(calls))
        self._sky.count(function, [answer for (answer,) in rows])

    def _some_jobs(self, at_most: int) -> list[int]:
        found = self._sky.ask(
            self._conn,
            "select id from xce.job where state = 'running' or is_open and id %% 8 = 0"
            " order by random() limit %s",
            self._dice.randint(1, at_most),
        )
        return [job for (job,) in found]

    def _key(self) -> str | None:
        return self._dice.choice([None, f"k{self._dice.randint(1, 200)}"])

    def _call(self, path: str, **members: Any) -> dict[str, Any]:
        user = self._sky.story.users["root" if members.get("is_operator") else "ann"]
        base = {"user_id": user, "is_operator": False, "key": None, "method": "POST"}
        return base | {"path": path, "body_sha256": "0"} | members


# -- workers ---------------------------------------------------------------------------------


class Worker:
    """A worker whose tasks are only numbers; now and then it falls silent for a while."""

    def __init__(self, sky: Sky, host: str, number: int) -> None:
        self._sky = sky
        self._host = host
        self._dice = random.Random(SEED * 2 + number)
        self._conn = sky.database.connect()
        self._incarnation = 0

    def run(self) -> None:
        with self._conn:
            self._conn.execute(f'set session authorization "story_{self._host}"'.encode())
            live: list[dict[str, Any]] = []
            while not self._sky.is_quiet.is_set():
                tasks = self._exchange(live)
                if tasks is None:
                    continue
                live = [self._named(task) | {"boot_id": "boot-1"} for task in tasks]
                self._report(tasks)
                naps = not self._sky.is_over.is_set() and self._dice.random() < 0.02
                self._sky.is_quiet.wait(1.5 if naps else 0.01)

    def _exchange(self, live: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """What should run here; None where the incarnation is over or nobody answered."""
        if not self._incarnation:
            for (answer,) in self._sky.ask(
                self._conn, "select xce.worker_register('boot-1', '0', %s)", Jsonb(live)
            ):
                self._incarnation = answer["incarnation"]
        rows = self._sky.ask(self._conn, "select xce.worker_fetch(%s, true)", self._incarnation)
        if not rows or rows[0][0]["stale"]:
            self._incarnation = 0
            return None
        return list(rows[0][0]["tasks"])

    def _report(self, tasks: list[dict[str, Any]]) -> None:
        said = [event for task in tasks for event in self._events(task)]
        self._dice.shuffle(said)
        if said:
            rows = self._sky.ask(
                self._conn,
                "select xce.worker_report(%s, %s)",
                self._incarnation,
                Jsonb(said),
            )
            if not rows or rows[0][0]["stale"]:
                self._incarnation = 0

    def _events(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        ended = {"execed": True, "signal": None, "lost": False, "reason": None}
        dice = self._dice.random()
        if task["state"] == "stopping" or (task["state"] == "running" and dice < 0.03):
            return [self._named(task) | ended | {"event": "gone", "exit_code": 0}]
        if task["state"] == "starting" and dice < 0.1:
            return [self._named(task) | ended | {"event": "gone", "exit_code": 1}]
        if task["state"] == "starting":
            return [self._named(task) | {"event": "up"}]
        return []

    def _named(self, task: dict[str, Any]) -> dict[str, Any]:
        return {name: task[name] for name in ("job_id", "attempt", "index")}


# -- the leader ------------------------------------------------------------------------------


class Leader:
    """The real tick over the real store, and the chores beside it, each on its connection."""

    def __init__(self, sky: Sky) -> None:
        self._sky = sky
        self.ticks = 0
        self.dethroned = 0
        self.accepted = 0
        self.refused: Counter[str] = Counter()

    def run_ticks(self) -> None:
        asyncio.run(self._turn())

    async def _turn(self) -> None:
        doorbell = Doorbell(self._sky.database.url)
        await doorbell.open()
        store = PgStore(self._sky.database.url, doorbell)
        while not self._sky.is_quiet.is_set():
            # Like a leader that learns late of its successor: it is refused, and then there is one.
            try:
                report = await tick(store, Policy())
            except EpochOver:
                self.dethroned += 1
                store.epoch = self._sky.epoch
                continue
            except Unavailable as error:
                cause = error.__cause__
                self._sky.errors[getattr(cause, "sqlstate", None) or "unavailable"] += 1
                continue
            self.ticks += 1
            self.accepted += report.accepted
            self.refused.update(report.refused)
            await asyncio.sleep(0.005)
        await store.close()
        await doorbell.close()

    def run_chores(self) -> None:
        with self._sky.database.connect() as conn:
            while not self._sky.is_quiet.is_set():
                for chore in ("sweep_silence", "sweep_losses", "sweep_deadlines", "settle_due"):
                    self._sky.ask(conn, f"select xce.{chore}(%s)", self._sky.epoch)
                self._sky.is_quiet.wait(0.02)

    def usurp(self) -> None:
        """A new leader every little while, each with an epoch of its own."""
        with self._sky.database.connect() as conn:
            while not self._sky.is_quiet.wait(0.2):
                self._sky.reigns += 1
                conn.execute("update xce.lease set expires_at = '-infinity'")
                holder = f"storm-{self._sky.reigns}"
                for is_leader, epoch in self._sky.ask(
                    conn, "select is_leader, epoch from xce.take_lease(%s)", holder
                ):
                    if is_leader:
                        self._sky.epoch = epoch


# -- the storm -------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_a_storm_of_32_clients_has_no_deadlock_and_ends(database: Database) -> None:
    with database.connect() as conn:
        sky = prepared(database, Story(conn))
        leader = Leader(sky)
        with ThreadPoolExecutor(CLIENTS + len(HOSTS) + 3) as pool:
            duties = (leader.run_ticks, leader.run_chores, leader.usurp)
            background = [pool.submit(duty) for duty in duties]
            background += [pool.submit(Worker(sky, h, n).run) for n, h in enumerate(HOSTS)]
            try:
                weather(sky, pool)
                open_rows = quiet_down(sky)
            finally:
                sky.is_over.set()
                sky.is_quiet.set()
            for each in background:
                each.result()
        deadlocks = sky.story.one(
            "select deadlocks from pg_catalog.pg_stat_database where datname = current_database()"
        )
        print(f"\n{sky.codes}\n{sky.errors}\nticks {leader.ticks}, {leader.accepted} accepted,")
        print(f"{sky.reigns} reigns, a late leader refused {leader.dethroned} times")
        print(f"refused {leader.refused}; {figures(sky.story)}")
        assert (deadlocks, sky.errors["40P01"]) == (0, 0)
        assert set(sky.errors) <= EXPECTED, sky.messages
        assert open_rows == 0
        assert broken_rules(conn) == []


def prepared(database: Database, story: Story) -> Sky:
    for host in HOSTS:
        story.host(host, cpus=24)
    story.user()
    story.user("root", is_operator=True)
    # So short a fence that the seconds of slack are over when a host is lost.
    brief = {"heartbeat_s": 0.3, "silent_s": 1, "fence_s": -4.5}
    for name, value in brief.items():
        story.conn.execute("update xce.setting set value = %s where name = %s", (value, name))
    story.conn.execute("update xce.setting set value = 300 where name = 'lease_s'")
    return Sky(database, story, epoch=story.lead())


def weather(sky: Sky, pool: ThreadPoolExecutor) -> None:
    clients = [pool.submit(Client(sky, number).run) for number in range(CLIENTS)]
    over = threading.Timer(STORM_S, sky.is_over.set)
    over.start()
    for each in clients:
        each.result()
    over.cancel()
    sky.is_over.set()


def quiet_down(sky: Sky) -> int:
    """Resume every host and kill every job; how much is still open when it is given up."""
    for host in HOSTS:
        sky.story.wish(host, "resume")
    for job in sky.story.rows("select id from xce.job where is_open"):
        sky.ask(
            sky.story.conn,
            "select answer from xce.command_jobs(%s)",
            Jsonb([killing(sky, job["id"])]),
        )
    query = """
        select (select count(*) from xce.job where is_open)
             + (select count(*) from xce.resize_request where is_open)
             + (select count(*) from xce.task where is_open)
    """
    deadline = time.monotonic() + QUIET_S
    while sky.story.one(query) and time.monotonic() < deadline:
        sky.is_quiet.wait(0.02)
    return int(sky.story.one(query))


def killing(sky: Sky, job: int) -> dict[str, Any]:
    members = {"verb": "kill", "if_match": None, "reason": "killed", "is_operator": True}
    return sky.story.call("root", f"/v1/jobs/{job}/kill", job_id=job, **members)


def figures(story: Story) -> dict[str, Any]:
    return story.rows(
        """
        select (select count(*) from xce.job) as jobs,
               (select count(*) from xce.resize_request) as requests,
               (select count(*) from xce.task) as tasks,
               (select count(*) from xce.history) as edges,
               (select count(*) from xce.history where event = 'silent') as silences,
               (select count(*) from xce.history where event = 'lost') as losses
        """
    )[0]
