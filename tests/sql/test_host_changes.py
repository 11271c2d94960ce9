"""Operators add, resize, vouch for and remove hosts (PROTOCOL §1, §6)."""

from typing import Any

import pytest

from tests.sql.test_hosts import silence, state_of
from tests.support.story import RefusedError, Story

SIZE = {"cpus": 4, "mem_mib": 1000, "gpus": 0, "labels": {}}


def put(story: Story, host: str, **size: Any) -> int:
    return story.operate("put_host", host, login=f"story_{host}", size=SIZE | size)


def retire(story: Story, host: str, *, confirm_dead: bool = True, **members: Any) -> int:
    return story.operate("retire_host", host, confirm_dead=confirm_dead, **members)


def remove(story: Story, host: str, **members: Any) -> int:
    return story.operate("remove_host", host, **members)


def everything(story: Story) -> dict[str, list[dict[str, Any]]]:
    tables = ("host", "task", "job", "resize_request", "hold", "history", "idempotency_key")
    return {table: story.rows(f"select * from xce.{table} t order by t::text") for table in tables}


def refused(story: Story, code: str, act: Any) -> RefusedError:
    """The refusal; whatever it was, it changed nothing."""
    before = everything(story)
    with pytest.raises(RefusedError, match=code) as caught:
        act()
    assert everything(story) == before
    return caught.value


def test_a_new_host_joins_and_its_worker_may_register_later(story: Story) -> None:
    story.hosts["h9"] = put(story, "h9", cpus=7, labels={"rack": "r1"})
    assert state_of(story, "h9") == "joining"
    assert story.events("host", story.hosts["h9"]) == ["register"]
    story.conn.execute("create role story_h9 login in role xce_worker")
    again = story.one("select xce.add_host('h9', 1, 1, 0, '{}', 'story_h9')")
    assert again == story.hosts["h9"]
    story.register("h9")
    story.fetch("h9")
    assert state_of(story, "h9") == "up"
    assert story.free("h9") == 7


def test_another_size_is_history_and_the_same_one_is_none(story: Story) -> None:
    put(story, "h1", cpus=9, labels={"rack": "r2"})
    assert story.free("h1") == 9
    assert story.events("host", story.hosts["h1"])[-1] == "wish"
    told = story.rows(
        "select detail from xce.history where lifecycle = 'host' and row_id = %s"
        " order by version desc limit 1",
        story.hosts["h1"],
    )
    assert told[0]["detail"] == SIZE | {"cpus": 9, "labels": {"rack": "r2"}}
    before = everything(story)
    put(story, "h1", cpus=9, labels={"rack": "r2"})
    assert everything(story) == before


def test_a_size_below_what_is_used_or_held_is_refused_with_figures(story: Story) -> None:
    job = story.running_job({"h1": 2}, max_tasks=4)
    story.place(story.grow(job, 1), {"h1": 1}, commit=False)
    told = refused(story, "drain_first", lambda: put(story, "h1", cpus=2))
    assert (told.figures["cpus_used"], told.figures["cpus_held"]) == (2, 1)
    put(story, "h1", cpus=3)
    assert story.free("h1") == 0


def test_retire_ends_a_lost_hosts_tasks_and_gives_everything_back(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 2}, max_tasks=9, on_host_loss="shrink")
    shrink = story.shrink(job, tasks=[2])
    story.stop(shrink)
    held = story.grow(job, 1)
    story.place(held, {"h2": 1}, commit=False)
    silence(story, "h2")
    seen = story.one("select last_seen_at from xce.heartbeat where host_id = %s", story.hosts["h2"])
    before = story.job(job)["generation"]
    retire(story, "h2")
    assert state_of(story, "h2") == "down"
    assert story.tasks(job) == {0: "running", 1: "lost", 2: "released"}
    assert story.request(shrink)["state"] == "released"
    assert story.request(held)["state"] == "pending"
    assert story.free("h2") == 4
    assert story.job(job)["generation"] == before + 1
    assert story.events("host", story.hosts["h2"])[-1] == "retire"
    ends = story.rows(
        "select upper(during) = greatest(lower(during), %s) or isempty(during) as is_charged"
        " from xce.allocation where host_id = %s",
        seen,
        story.hosts["h2"],
    )
    assert [end["is_charged"] for end in ends] == [True, True]


def test_retire_twice_is_once(story: Story) -> None:
    silence(story, "h2")
    retire(story, "h2")
    before = everything(story)
    retire(story, "h2")
    assert everything(story) == before


def test_retire_wants_a_lost_host_and_the_word_of_an_operator(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, max_tasks=3)
    told = refused(story, "drain_first", lambda: retire(story, "h2"))
    assert (told.figures["state"], told.figures["open_tasks"]) == ("up", 1)
    silence(story, "h2")
    refused(story, "invalid", lambda: retire(story, "h2", confirm_dead=False))
    refused(story, "not_allowed", lambda: retire(story, "h2", user="ann"))
    refused(story, "not_found", lambda: retire(story, "h8"))
    assert story.tasks(job) == {0: "running", 1: "running"}


def test_a_retired_host_comes_back_when_it_is_resumed(story: Story) -> None:
    silence(story, "h2")
    retire(story, "h2")
    story.register("h2")
    assert state_of(story, "h2") == "down"
    story.wish("h2", "resume")
    story.fetch("h2")
    assert state_of(story, "h2") == "up"


def test_a_worker_that_lived_after_all_is_told_to_stop_everything(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, max_tasks=3)
    silence(story, "h2")
    retire(story, "h2")
    live = [{"job_id": job, "attempt": 1, "index": 1, "boot_id": "boot-1"}]
    assert story.register("h2", live)["keep"] == []
    assert story.fetch("h2") == []


def test_h32_a_host_with_tasks_or_holds_is_not_removed(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, max_tasks=4)
    story.place(story.grow(job, 2), {"h2": 2}, commit=False)
    for how in ("up", "draining", "lost"):
        if how == "draining":
            story.wish("h2", "drain")
        if how == "lost":
            silence(story, "h2")
        told = refused(story, "drain_first", lambda: remove(story, "h2"))
        assert told.figures == {"state": how, "open_tasks": 1, "held_tasks": 2}
    retire(story, "h2")
    remove(story, "h2")
    assert state_of(story, "h2") == "removed"


def test_only_an_operator_removes_a_host_and_only_one_that_is_there(story: Story) -> None:
    story.wish("h3", "drain")
    refused(story, "not_allowed", lambda: remove(story, "h3", user="ann"))
    remove(story, "h3")
    refused(story, "not_found", lambda: remove(story, "h3"))
    size = {"size": SIZE, "login": "x"}
    refused(story, "not_allowed", lambda: story.operate("put_host", "h3", user="ann", **size))


def test_a_name_may_be_used_again(story: Story) -> None:
    story.wish("h3", "drain")
    remove(story, "h3")
    assert put(story, "h3") > story.hosts["h3"]


def test_a_host_that_no_worker_ever_had_is_drained_and_removed(story: Story) -> None:
    host = put(story, "typo")
    refused(story, "drain_first", lambda: remove(story, "typo"))
    story.wish("typo", "drain")
    assert state_of(story, "typo") == "down"
    remove(story, "typo")
    assert story.events("host", host) == [
        "register",
        "wish",
        "cleared",
        "drain",
        "emptied",
        "remove",
    ]
