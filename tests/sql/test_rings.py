"""Every commit that ends a request rings `xce_watch`: whoever waits for it is woken."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from tests.support.rules import broken_rules
from tests.support.story import Story

FINAL = "select count(*) from xce.resize_request where finished_at is not null"
LATER = "clock_timestamp() + interval '1 hour'"


class Heard(Story):
    """A story that checks each answer: where requests ended, the bell is among its rings."""

    ended: int = 0

    def one(self, query: str, *values: Any) -> Any:
        answer = super().one(query, *values)
        # A worker's login may not look whether anything ended; `report` does it afterwards.
        if "xce." in query and "xce.worker_" not in query:
            self.hear(answer)
        return answer

    def report(self, host: str, *reports: Mapping[str, Any]) -> dict[str, Any]:
        answer = super().report(host, *reports)
        self.hear(answer["rings"])
        return answer

    def apply(self, *decisions: Mapping[str, Any]) -> list[str | None]:
        if not self.epoch:
            self.lead()
        rows = self.conn.execute(
            "select code, rings from xce.apply_plan(%s, %s) order by ordinal",
            (self.epoch, Jsonb({"decisions": list(decisions), "policy": {}})),
        ).fetchall()
        self.hear(rows[0][1])
        return [row[0] for row in rows]

    def sweep(self, name: str) -> None:
        self.one(f"select xce.{name}(%s, {LATER})", self.epoch or self.lead())

    def hear(self, answer: Any) -> None:
        before, self.ended = self.ended, super().one(FINAL)
        assert self.ended == before or "xce_watch" in str(answer), answer


@pytest.fixture
def heard(tx: Connection[TupleRow]) -> Iterator[Heard]:
    told = Heard(tx)
    for name in ("h1", "h2"):
        told.host(name)
    yield told
    assert broken_rules(tx) == []


def committed(heard: Heard, **members: Any) -> tuple[int, int]:
    """A running job with a grow by two whose tasks are starting."""
    job = heard.running_job({"h1": 1}, max_tasks=4, **members)
    request = heard.grow(job, 2)
    heard.place(request, {"h1": 1, "h2": 1})
    for name in ("h1", "h2"):
        heard.fetch(name)
    return job, request


def came_up(heard: Heard) -> None:
    job, _ = committed(heard)
    heard.up(job, 1, 2)


def failed_to_start(heard: Heard) -> None:
    job, _ = committed(heard)
    heard.gone(job, 1, None, execed=False)


def start_deadline(heard: Heard) -> None:
    committed(heard)
    heard.sweep("sweep_deadlines")


def own_deadline(heard: Heard) -> None:
    heard.grow(heard.running_job({"h1": 1}, max_tasks=4), 1, deadline_s=1)
    heard.sweep("sweep_deadlines")


def cancelled(heard: Heard) -> None:
    heard.cancel(heard.grow(heard.running_job({"h1": 1}, max_tasks=4), 1))


def cancelled_by_the_plan(heard: Heard) -> None:
    request = heard.grow(heard.running_job({"h1": 1}, max_tasks=4), 1)
    assert heard.apply(heard.deciding("cancel", request, reason="order")) == [None]


def superseded(heard: Heard) -> None:
    job = heard.running_job({"h1": 1}, max_tasks=4)
    heard.grow(job, 1)
    heard.resize_to(job, 3)


def released(heard: Heard) -> None:
    job = heard.running_job({"h1": 2}, min_tasks=1)
    heard.stop(heard.shrink(job, tasks=[1]))
    heard.gone(job, 1, None, signal=15)


def withdrawn(heard: Heard) -> None:
    job = heard.running_job({"h1": 1}, max_tasks=4)
    heard.place(heard.grow(job, 1), {"h2": 1})
    heard.stop(heard.shrink(job, tasks=[1]))


def emptied_shrink(heard: Heard) -> None:
    job = heard.running_job({"h1": 2}, min_tasks=1)
    heard.shrink(job, tasks=[1])
    heard.gone(job, 1)


def killed(heard: Heard) -> None:
    job, _ = committed(heard)
    heard.kill(job)


def killed_before_it_started(heard: Heard) -> None:
    heard.kill(heard.submit(1))


def requeued(heard: Heard) -> None:
    job, _ = committed(heard)
    heard.command("requeue", job)


def host_lost(heard: Heard) -> None:
    job = heard.running_job({"h1": 1}, max_tasks=4)
    heard.place(heard.grow(job, 1), {"h2": 1})
    heard.sweep("sweep_silence")


def job_over(heard: Heard) -> None:
    job = heard.running_job({"h1": 1}, max_tasks=4)
    heard.grow(job, 1)
    heard.gone(job, 0)


WAYS = [
    *(came_up, failed_to_start, start_deadline, own_deadline, cancelled, cancelled_by_the_plan),
    *(superseded, released, withdrawn, emptied_shrink, killed, killed_before_it_started),
    *(requeued, host_lost, job_over),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_request_that_ends_rings_for_those_who_wait(
    heard: Heard, way: Callable[[Heard], None]
) -> None:
    before = heard.ended
    way(heard)
    assert heard.ended > before + (way not in {killed_before_it_started})
