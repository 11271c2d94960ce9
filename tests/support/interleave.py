"""Runs two writers against each other step by step: one stands in its transaction, one meets it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.cluster import Database
from tests.support.rules import broken_rules
from tests.support.story import RefusedError, Story

Act = Callable[[Story], Any]
DEADLINE_S = 5.0
GLANCE_S = 0.001
STORY_TABLES = (
    "history",
    "tick",
    "clock_jump",
    "idempotency_key",
    "allocation",
    "hold",
    "task",
    "resize_request",
    "job_launch",
    "job",
    "heartbeat",
    "incarnation",
    "host",
    "user_account",
)


@dataclass
class Two:
    """One story told over two connections, and a third connection that looks on."""

    told: Story
    other: Story
    watcher: Connection[TupleRow]

    def race(
        self, first: Act, second: Act, *, meets: bool = True, then: Act | None = None
    ) -> tuple[Any, Any]:
        """What each answered, when `second` began after `first` had written and before it commits.

        `second` has to wait for a lock of `first`, and with `meets=False` must not wait at all;
        `then` is done by the first one once they have met. A refusal is an answer by its code, an
        error by its SQLSTATE.
        """
        self.other.epoch = self.told.epoch
        with ThreadPoolExecutor(1) as pool:
            with transaction(self.told) as answered:
                answers = [answered(first)]
                running = pool.submit(alone, self.other, second)
                if meets:
                    self.await_waiting(self.other.conn, running)
                else:
                    running.result(DEADLINE_S)
                if then is not None:
                    answers[0] = answered(then)
            answers.append(running.result(DEADLINE_S))
        return answers[0], answers[1]

    def await_waiting(self, conn: Connection[TupleRow], running: Future[Any]) -> None:
        """Return once the connection's backend really waits for a lock of somebody."""
        assert is_waiting(self.watcher, conn, running), f"went past: {running.result()}"


def is_waiting(
    watcher: Connection[TupleRow], conn: Connection[TupleRow], running: Future[Any]
) -> bool:
    """Whether a running call comes to wait for a lock (True) or ends without (False)."""
    pid = conn.info.backend_pid
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        blockers = watcher.execute("select pg_catalog.pg_blocking_pids(%s)", (pid,)).fetchone()
        if blockers and blockers[0]:
            return True
        if wait([running], GLANCE_S).done:
            return False
    raise AssertionError(f"backend {pid} neither waits nor ends")


@contextmanager
def transaction(story: Story) -> Iterator[Callable[[Act], Any]]:
    """A transaction for one act; it is rolled back where that raised an error of the database."""
    story.conn.execute("begin")
    yield lambda act: answer_of(story, act)
    story.conn.execute("commit")


def answer_of(story: Story, act: Act) -> Any:
    try:
        return act(story)
    except RefusedError as refusal:
        return refusal.code
    except psycopg.Error as error:
        return error.sqlstate


def alone(story: Story, act: Act) -> Any:
    with transaction(story) as answered:
        return answered(act)


def forget_everything(conn: Connection[TupleRow]) -> None:
    """Empty the tables that stories fill, for less than a new database costs."""
    with conn.transaction():
        # Takes the guards and foreign keys away, so that the order does not matter.
        conn.execute("set local session_replication_role = replica")
        for table in STORY_TABLES:
            conn.execute(f"delete from xce.{table}".encode())
        conn.execute("update xce.lease set holder = null, expires_at = '-infinity'")


@contextmanager
def two_stories(database: Database) -> Iterator[Two]:
    """Three hosts of four cpus, all up, and a leader; in the end every rule holds."""
    with ExitStack() as stack:
        one, other, watcher = (stack.enter_context(database.connect()) for _ in range(3))
        told = Story(one)
        for name in ("h1", "h2", "h3"):
            told.host(name)
        told.user()
        told.user("root", is_operator=True)
        told.lead()
        yield Two(
            told, Story(other, told.hosts, told.incarnations, told.users, told.epoch), watcher
        )
        assert broken_rules(watcher) == []
