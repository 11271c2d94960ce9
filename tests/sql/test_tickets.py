"""Tickets for a worker's port: who is given one, and what it is worth to whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.support.story import Story

FINGERPRINT = "ab" * 32
SECRETS = iter(range(10**6))


def door(story: Story, host: str, address: str | None = "10.0.0.1:7000") -> None:
    """The host's worker registers anew, with a port or without."""
    with story.worker_of(host):
        answer = story.one(
            "select xce.worker_register('boot-1', '0', '[]', null, %s, %s)",
            address,
            FINGERPRINT if address else None,
        )
    story.incarnations[host] = answer["incarnation"]


def ask(story: Story, job: int, index: int = 0, **members: Any) -> tuple[dict[str, Any], bytes]:
    """The answer, and the hash that the ticket would be known by."""
    sha256 = next(SECRETS).to_bytes(32, "big")
    call = {"purpose": "output", "sees_only": story.user("ann"), "token_id": None, "job_id": job}
    call |= {"index": index, "attempt": None, "sha256": sha256.hex()} | members
    return story.one("select xce.give_ticket(%s)", Jsonb(call)), sha256


def redeem(story: Story, host: str, sha256: bytes) -> dict[str, Any] | None:
    with story.worker_of(host):
        found: dict[str, Any] | None = story.one(
            "select xce.worker_redeem(%s, %s)", story.incarnations[host], sha256
        )
    return found


@pytest.fixture
def job(story: Story) -> int:
    """Tasks 0 on h1 and 1 on h2, both running behind a port."""
    door(story, "h1")
    door(story, "h2", "10.0.0.2:7000")
    for host in ("h1", "h2"):
        story.fetch(host)
    return story.running_job({"h1": 1, "h2": 1}, stdout="logs/%t")


def test_a_ticket_names_the_tasks_own_worker_and_is_good_once(story: Story, job: int) -> None:
    given, sha256 = ask(story, job, 1)
    assert given == {
        "ok": True,
        "attempt": 1,
        "is_ended": False,
        "address": "10.0.0.2:7000",
        "fingerprint": FINGERPRINT,
    }
    assert redeem(story, "h2", sha256) == {
        "purpose": "output",
        "job_id": job,
        "attempt": 1,
        "index": 1,
        "state": "running",
        "host": "h2",
        "stdout": "logs/%t",
        "stderr": None,
    }
    assert redeem(story, "h2", sha256) is None
    assert story.one("select count(*) from xce.ticket") == 0


def test_another_host_can_neither_use_a_ticket_nor_use_it_up(story: Story, job: int) -> None:
    _, sha256 = ask(story, job, 1)
    assert redeem(story, "h1", sha256) is None
    assert redeem(story, "h2", sha256) is not None


def test_a_ticket_lives_for_half_a_minute(story: Story, job: int) -> None:
    _, sha256 = ask(story, job)
    lives_s = "select extract(epoch from expires_at - clock_timestamp()) from xce.ticket"
    assert 29 < story.one(lives_s) <= 30
    story.conn.execute("update xce.ticket set expires_at = clock_timestamp()")
    assert redeem(story, "h1", sha256) is None
    assert redeem(story, "h1", bytes(32)) is None


def test_expired_tickets_are_swept(story: Story, job: int) -> None:
    ask(story, job)
    story.one("select xce.expire_rows(clock_timestamp() + interval '20 seconds')")
    assert story.one("select count(*) from xce.ticket") == 1
    story.one("select xce.expire_rows(clock_timestamp() + interval '31 seconds')")
    assert story.one("select count(*) from xce.ticket") == 0


def test_an_incarnation_that_is_over_redeems_nothing(story: Story, job: int) -> None:
    _, sha256 = ask(story, job)
    old = story.incarnations["h1"]
    door(story, "h1", "10.0.0.1:7001")
    new, story.incarnations["h1"] = story.incarnations["h1"], old
    assert redeem(story, "h1", sha256) is None
    story.incarnations["h1"] = new
    assert redeem(story, "h1", sha256) is not None
    assert ask(story, job)[0]["address"] == "10.0.0.1:7001"


@pytest.mark.parametrize("index", [2, 2**31 - 1])
def test_an_unknown_task_and_a_foreign_one_are_told_apart_by_nobody(
    story: Story, job: int, index: int
) -> None:
    unknown, _ = ask(story, job, index)
    foreign, _ = ask(story, job, sees_only=story.user("bob"))
    assert unknown == foreign == ask(story, job + 1000)[0]
    assert unknown["code"] == "not_found"
    assert ask(story, job, sees_only=None)[0]["ok"]
    assert story.one("select count(*) from xce.ticket") == 1


def test_a_dead_token_is_given_nothing(story: Story, job: int) -> None:
    token = story.one("select xce.add_token(%s, 'owner', %s, null)", story.user("ann"), bytes(32))
    assert ask(story, job, token_id=token)[0]["ok"]
    story.conn.execute("update xce.token set revoked_at = clock_timestamp()")
    assert ask(story, job, token_id=token)[0]["code"] == "unauthenticated"


def test_an_ended_task_is_still_read_on_its_host(story: Story, job: int) -> None:
    story.gone(job, 0)
    given, sha256 = ask(story, job)
    assert given["is_ended"]
    ticket = redeem(story, "h1", sha256)
    assert ticket is not None
    assert ticket["state"] == "ended"


def test_what_has_not_started_has_no_worker_to_ask_yet(story: Story) -> None:
    door(story, "h1")
    story.fetch("h1")
    job = story.submit(2)
    assert ask(story, job, 1)[0] == {"ok": True, "attempt": 1}
    assert ask(story, job, 2)[0]["code"] == "not_found"
    story.place(story.start_of(job), {"h1": 2})
    assert ask(story, job, 1)[0] == {"ok": True, "attempt": 1}
    assert story.one("select count(*) from xce.ticket") == 0
    story.fetch("h1")
    assert ask(story, job, 1)[0]["address"] == "10.0.0.1:7000"


def test_the_newest_attempt_is_meant_unless_another_is_named(story: Story, job: int) -> None:
    story.command("requeue", job)
    for index in (0, 1):
        story.gone(job, index, None, signal=15)
    assert story.job(job)["attempt"] == 2
    assert ask(story, job)[0]["attempt"] == 1
    story.place(story.start_of(job), {"h2": 2})
    story.fetch("h2")
    given, _ = ask(story, job)
    assert (given["attempt"], given["address"]) == (2, "10.0.0.2:7000")
    given, _ = ask(story, job, attempt=1)
    assert (given["attempt"], given["address"]) == (1, "10.0.0.1:7000")


def test_a_task_that_never_ran_wrote_nothing(story: Story) -> None:
    door(story, "h1")
    story.fetch("h1")
    job = story.submit()
    story.place(story.start_of(job), {"h1": 1})
    story.kill(job)
    assert ask(story, job)[0]["code"] == "output_gone"


def test_a_lost_host_and_a_worker_without_a_port_cannot_be_reached(story: Story, job: int) -> None:
    door(story, "h2", None)
    assert ask(story, job, 1)[0]["code"] == "unavailable"
    with lost(story, "h1"):
        refused, _ = ask(story, job)
        assert (refused["code"], refused["figures"]) == ("unavailable", {"host": "h1"})
    door(story, "h1")
    assert ask(story, job)[0]["ok"]


@contextmanager
def lost(story: Story, host: str) -> Iterator[None]:
    story.lead()
    story.conn.execute(
        "update xce.heartbeat set last_seen_at = clock_timestamp() - interval '1 hour'"
        " where host_id = %s",
        (story.hosts[host],),
    )
    story.one("select rings from xce.sweep_silence(%s)", story.epoch)
    assert story.one("select state from xce.host where name = %s", host) == "lost"
    yield


@pytest.mark.parametrize(
    ("address", "fingerprint"), [("x" * 301, "ab" * 32), ("h:1", "no"), ("h:1", "AB" * 32)]
)
def test_nonsense_of_a_worker_is_not_stored(story: Story, address: str, fingerprint: str) -> None:
    from psycopg.errors import CheckViolation

    with story.worker_of("h1"), pytest.raises(CheckViolation), story.conn.transaction():
        story.one("select xce.worker_register('b', '0', '[]', null, %s, %s)", address, fingerprint)


def test_a_worker_may_redeem_tickets_and_neither_give_nor_see_them(story: Story) -> None:
    gives = "xce.give_ticket(jsonb, timestamptz)"
    may = "select has_function_privilege('xce_worker', %s, 'execute')"
    assert story.one(may, gives) is False
    assert story.one(may, "xce.worker_redeem(bigint, bytea)") is True
    assert story.one("select has_table_privilege('xce_worker', 'xce.ticket', 'select')") is False
