"""Every entry point takes its row locks in the one order of ARCHITECTURE.md.

Recorded from the outside: somebody holds one row of a level, the call comes to wait for it, and a
third connection looks which rows of the other levels the call holds by then.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.interleave import DEADLINE_S, Act, Two, is_waiting
from tests.support.story import Story

ROWS = {
    "fence": "select id from xce.fence where id = 1",
    "job": "select id from xce.job where is_open",
    "request": "select id from xce.resize_request where is_open",
    "task": "select id from xce.task where is_open",
    "host": "select id from xce.host where name <> 'h3'",
    "heartbeat": "select host_id from xce.heartbeat b where b.host_id in (select id from xce.host"
    " where name <> 'h3')",
}
KEYED = """
    insert into xce.idempotency_key (user_id, method, path, key, body_sha256, status, resource,
                                     resource_id, created_at)
    values (%s, 'POST', %s, 'k', '0', 202, 'host', 0, now())
"""
Scene = Callable[[Story, list[int]], Act]


def documented_order() -> list[str]:
    text = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    found = re.search(r"^ +(fence → .*?); heartbeat and idempotency key last$", text, re.M)
    assert found, "ARCHITECTURE.md says the order in another way"
    return [level.strip() for level in found[1].split("→")] + ["heartbeat", "key"]


# -- what is recorded ------------------------------------------------------------------------


class Recorder:
    """Runs one call again and again, each time against a row that somebody else holds."""

    def __init__(self, two: Two, act: Act) -> None:
        self._two = two
        self._act = act

    def order(self) -> list[str]:
        """The levels that the call locks, in its own order."""
        seen: dict[str, set[str]] = {}
        for level in ROWS:
            for end in ("asc", "desc"):
                held = self._held_at(level, end)
                if held is not None:
                    seen.setdefault(level, set()).update(held)
        order: list[str] = []
        for level in sorted(seen, key=lambda level: len(seen[level])):
            order += sorted(seen[level].difference(order), key=list(ROWS).index)
            order.append(level)
        assert len(set(order)) == len(order), f"some rows of a level come too late: {seen}"
        return order

    def _held_at(self, level: str, end: str) -> set[str] | None:
        """The levels held once the call waits for the first or last row; None where it does not."""
        with self._two.watcher.transaction(force_rollback=True):
            self._two.watcher.execute(
                f"{ROWS[level]} order by 1 {end} limit 1 for no key update".encode()
            )
            return self._while_blocked(lambda: self._held(level, end))

    def _while_blocked(self, look: Callable[[], set[str]]) -> set[str] | None:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self._try)
            try:
                if not is_waiting(self._two.watcher, self._two.other.conn, running):
                    return None
                return look()
            finally:
                self._two.other.conn.cancel_safe()
                running.result(DEADLINE_S)

    def _try(self) -> None:
        conn = self._two.other.conn
        conn.execute("begin")
        try:
            self._act(self._two.other)
        except psycopg.errors.QueryCanceled:
            pass
        finally:
            conn.execute("rollback")

    def _held(self, blocked: str, end: str) -> set[str]:
        held = set()
        for level, rows in ROWS.items():
            taken = self._taken(rows)
            if level != blocked:
                held |= {level} if taken else set()
            elif end == "asc":
                # The first row of its level is the one that somebody else has.
                assert len(taken) == 1, f"{level} is not locked in ascending order: {taken}"
        return held

    def _taken(self, rows: str) -> set[int]:
        with self._two.told.conn.transaction(force_rollback=True):
            everything = {row[0] for row in self._two.told.conn.execute(rows.encode())}
            free = {
                row[0]
                for row in self._two.told.conn.execute(
                    f"{rows} for no key update skip locked".encode()
                )
            }
        return everything - free


# -- the calls -------------------------------------------------------------------------------
# Two jobs, each with tasks on h2 and then on h1, so that neither comes in order by itself.


def two_jobs(story: Story) -> list[int]:
    made = []
    for _ in range(2):
        job = story.submit(2, max_tasks=6, cpus=0, mem_mib=1, start_s=600)
        story.place(story.start_of(job), {"h2": 1, "h1": 1})
        story.fetch("h1")
        story.fetch("h2")
        story.up(job, 0, 1)
        made.append(job)
    return made


def asked(story: Story, jobs: list[int], **members: Any) -> list[int]:
    return [story.grow(job, 2, **members) for job in jobs]


def held(story: Story, jobs: list[int]) -> list[int]:
    grows = asked(story, jobs)
    for grow in grows:
        story.place(grow, {"h2": 1, "h1": 1}, commit=False)
    return grows


def assigned(story: Story, jobs: list[int]) -> list[int]:
    grows = asked(story, jobs)
    for grow in grows:
        story.place(grow, {"h2": 1, "h1": 1})
    return grows


def place(story: Story, jobs: list[int]) -> Act:
    decisions = [story.placing(g, {"h2": 1, "h1": 1}) for g in reversed(asked(story, jobs))]
    return lambda s: s.apply(*decisions)


def commit(story: Story, jobs: list[int]) -> Act:
    decisions = [story.deciding("commit", grow) for grow in reversed(held(story, jobs))]
    return lambda s: s.apply(*decisions)


def place_and_commit(story: Story, jobs: list[int]) -> Act:
    [first, second] = asked(story, jobs)
    story.place(second, {"h1": 2}, commit=False)
    decisions = [story.placing(first, {"h2": 2}), story.deciding("commit", second)]
    return lambda s: s.apply(*decisions)


def stop_what_fails_and_place(story: Story, jobs: list[int]) -> Act:
    """The stop of task 2 fails its grow, which frees task 3's room on h1 beside the placement."""
    grow = story.grow(jobs[0], 3, least=2)
    story.place(grow, {"h2": 2, "h1": 1})
    story.conn.execute(
        "update xce.task set outcome = 'failed' where request_id = %s and index = 3", (grow,)
    )
    stopping = story.deciding("stop", story.shrink(jobs[0], tasks=[2]))
    other = story.placing(story.grow(jobs[1], 1), {"h2": 1})
    return lambda s: s.apply(other, stopping)


def stop(story: Story, jobs: list[int]) -> Act:
    assigned(story, jobs)
    shrinks = [story.shrink(job, tasks=[2, 3]) for job in jobs]
    decisions = [story.deciding("stop", shrink) for shrink in reversed(shrinks)]
    return lambda s: s.apply(*decisions)


def cancel_by_plan(story: Story, jobs: list[int]) -> Act:
    grows = reversed(held(story, jobs))
    decisions = [story.deciding("cancel", grow, reason="because") for grow in grows]
    return lambda s: s.apply(*decisions)


def calls(function: str, *made: dict[str, Any]) -> Act:
    query = f"select * from xce.{function}(%s)".encode()
    return lambda s: s.conn.execute(query, (Jsonb(list(made)),))


def ask_shrinks(story: Story, jobs: list[int]) -> Act:
    members = {"if_match": None, "origin": "owner", "kind": "shrink", "tasks": [1]}
    return calls(
        "ask_resizes",
        *(
            story.call("ann", "", job_id=job, deadline_s=None, grace_s=None, **members)
            for job in reversed(jobs)
        ),
    )


def ask_sizes(story: Story, jobs: list[int]) -> Act:
    """Smaller ones: held grows are superseded, and what is assigned or runs leaves at once."""
    assigned(story, jobs)
    held(story, jobs)
    members = {"if_match": None, "origin": "owner", "kind": "to", "to": 1, "at_once": True}
    return calls(
        "ask_resizes",
        *(
            story.call("ann", "", job_id=job, deadline_s=None, grace_s=None, **members)
            for job in reversed(jobs)
        ),
    )


def cancel(story: Story, jobs: list[int]) -> Act:
    grows = reversed(held(story, jobs))
    return calls(
        "cancel_requests", *(story.call("ann", "", request_id=g, count=None) for g in grows)
    )


def kill(story: Story, jobs: list[int]) -> Act:
    assigned(story, jobs)
    members = {"verb": "kill", "if_match": None, "reason": "killed"}
    # One job: tasks are in order within each, and whoever wants those of a job has its lock.
    return calls("command_jobs", story.call("ann", "", job_id=jobs[0], **members))


def command(story: Story, jobs: list[int], verb: str) -> Act:
    members = {"verb": verb, "if_match": None}
    made = [story.call("ann", "", job_id=job, **members) for job in reversed(jobs)]
    return calls("command_jobs", *made)


def requeue(story: Story, jobs: list[int]) -> Act:
    assigned(story, jobs)
    return command(story, jobs[:1], "requeue")


def hold(story: Story, jobs: list[int]) -> Act:
    held(story, jobs)
    return command(story, jobs, "hold")


def release(story: Story, jobs: list[int]) -> Act:
    for job in jobs:
        story.command("hold", job)
    return command(story, jobs, "release")


def settle_due(story: Story, jobs: list[int]) -> Act:
    """A task failed that its grow needs, and nobody settled it then. Of one job, as with a kill."""
    assigned(story, jobs)
    story.conn.execute(
        "update xce.task set outcome = 'failed' where index = 3 and job_id = %s", (jobs[0],)
    )
    return lambda s: s.one("select xce.settle_due(%s)", s.epoch)


def sweep_silence(story: Story, jobs: list[int]) -> Act:
    """Of two silent hosts; h1 has the younger job to itself."""
    assigned(story, jobs)
    silenced = [story.hosts["h1"], story.hosts["h2"]]
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = '-infinity' where host_id = any(%s)", (silenced,)
    )
    return lambda s: s.one("select rings from xce.sweep_silence(%s)", s.epoch)


def sweep_one(story: Story, jobs: list[int]) -> Act:
    """Of h2 alone, whose loss frees room on h1."""
    assigned(story, jobs)
    return sweep_h2(story)


def sweep_h2(story: Story) -> Act:
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = '-infinity' where host_id = %s",
        (story.hosts["h2"],),
    )
    return lambda s: s.one("select rings from xce.sweep_silence(%s)", s.epoch)


def sweep_losses(story: Story, jobs: list[int]) -> Act:
    """Of h2, whose fence is over; what its jobs stop or lose frees room on h1."""
    assigned(story, jobs)
    story.fetch("h2")
    sweep_h2(story)(story)
    return lambda s: s.one("select rings from xce.sweep_losses(%s)", s.epoch)


def sweep_deadlines(story: Story, jobs: list[int]) -> Act:
    assigned(story, jobs)
    later = "clock_timestamp() + interval '1 hour'"
    return lambda s: s.one(f"select xce.sweep_deadlines(%s, {later})", s.epoch)


def report(story: Story, jobs: list[int]) -> Act:
    """Of h1, where a task fails that its grow needs: room on h2 is freed too."""
    assigned(story, jobs)
    story.fetch("h1")
    ended = {"execed": True, "exit_code": 1, "signal": None, "lost": False, "reason": None}
    said = [story.saying(job, 3, "gone", **ended) for job in reversed(jobs)]
    return lambda s: s.report("h1", *said)


def fetch(story: Story, jobs: list[int]) -> Act:
    assigned(story, jobs)
    return lambda s: s.fetch("h1")


def register(_story: Story, _jobs: list[int]) -> Act:
    return lambda s: s.register("h1")


def drain(_story: Story, _jobs: list[int]) -> Act:
    return lambda s: s.wish("h1", "drain")


def retire(story: Story, jobs: list[int]) -> Act:
    """Of h2, lost with the tasks of two jobs on it; what they fail frees room on h1."""
    assigned(story, jobs)
    story.fetch("h2")
    sweep_h2(story)(story)
    return lambda s: s.operate("retire_host", "h2", confirm_dead=True)


def put(_story: Story, _jobs: list[int]) -> Act:
    size = {"cpus": 9, "mem_mib": 1000, "gpus": 0, "labels": {}}
    return lambda s: s.operate("put_host", "h1", login="story_h1", size=size)


def remove(story: Story, _jobs: list[int]) -> Act:
    """Of h2, whose machine somebody switched off."""
    sweep_h2(story)(story)
    story.operate("retire_host", "h2", confirm_dead=True)
    return lambda s: s.operate("remove_host", "h2")


def give_ticket(story: Story, jobs: list[int]) -> Act:
    """In any number at once: the rows that a ticket refers to are kept from being deleted only."""
    door = ("127.0.0.1:1", "ab" * 32)
    story.conn.execute("update xce.incarnation set address = %s, fingerprint = %s", door)
    call = {"purpose": "output", "sees_only": None, "token_id": None, "job_id": jobs[0]}
    call |= {"index": 1, "attempt": None, "sha256": "00" * 32}
    return lambda s: s.one("select xce.give_ticket(%s)", Jsonb(call))["ok"]


# The claim skips tasks that somebody has, so that it waits for its heartbeat only.
ENTRY_POINTS: list[tuple[Scene, str]] = [
    (place, "fence job request host"),
    (commit, "fence job request host"),
    (place_and_commit, "fence job request host"),
    (stop, "fence job request task host"),
    (stop_what_fails_and_place, "fence job request task host"),
    (cancel_by_plan, "fence job request host"),
    (ask_shrinks, "job task"),
    (ask_sizes, "job request task host"),
    (cancel, "job request host"),
    (kill, "job request task host"),
    (requeue, "job request task host"),
    (hold, "job request host"),
    (release, "job"),
    (settle_due, "fence job request task host"),
    (sweep_silence, "fence job request task host heartbeat"),
    (sweep_one, "fence job request task host heartbeat"),
    (sweep_losses, "fence job request task host heartbeat"),
    (sweep_deadlines, "fence job request task host"),
    (report, "job request task host heartbeat"),
    (fetch, "task heartbeat"),
    (register, "host heartbeat"),
    (drain, "host"),
    (retire, "job request task host heartbeat"),
    (put, "host"),
    (remove, "host"),
    (give_ticket, "job"),
]


@pytest.mark.parametrize(
    ("scene", "expected"), ENTRY_POINTS, ids=[scene.__name__ for scene, _ in ENTRY_POINTS]
)
def test_the_locks_of(scene: Scene, expected: str, two: Two) -> None:
    jobs = two_jobs(two.told)
    order = Recorder(two, scene(two.told, jobs)).order()
    assert order == expected.split()
    assert order == [level for level in documented_order() if level in order]


@pytest.mark.parametrize("verb", ["submit", "drain"])
def test_the_key_is_last_where_no_job_guards_it(two: Two, verb: str) -> None:
    """A key of a job's call waits for nobody: its path names the job, whose lock is held."""
    path = {"submit": "/v1/jobs", "drain": "/v1/hosts/h1/drain"}[verb]
    user = two.told.users[{"submit": "ann", "drain": "root"}[verb]]

    def act(story: Story) -> Any:
        if verb == "submit":
            return story.submit(key="k")
        call = story.call("root", path, name="h1", wish="drain", key="k")
        return story.one("select xce.wish_host(%s)", Jsonb(call))["status"]

    kept = (user, path)
    answers = two.race(lambda s: s.conn.execute(KEYED.encode(), kept).rowcount, act)
    assert answers == (1, "23505")
