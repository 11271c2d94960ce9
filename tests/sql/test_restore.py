"""After a restore nothing moves until every host has reported and somebody says so."""

import psycopg
import pytest

from tests.support.story import RefusedError, Story


def unknown(story: Story) -> list[tuple[str, int, int, int]]:
    rows = story.rows("select * from xce.unknown_tasks()")
    return [(row["host"], row["job_id"], row["attempt"], row["index"]) for row in rows]


def live(job: int, *indices: int) -> list[dict[str, object]]:
    return [{"job_id": job, "attempt": 1, "index": i, "boot_id": "boot-1"} for i in indices]


def test_nothing_moves_until_an_operator_says_so(story: Story) -> None:
    job = story.running_job({"h1": 1, "h2": 1}, max_tasks=6)
    waiting = story.submit(1)
    epoch, era = story.epoch, story.one("select era from xce.fence")
    story.conn.execute("select xce.begin_restore()")
    fence = story.rows("select * from xce.fence")[0]
    assert fence["epoch"] >= epoch + 1_000_000
    assert fence["era"] == era + 1
    lead = story.rows("select * from xce.take_lease('story')")[0]
    assert lead["is_leader"] is False
    for act in (
        lambda: story.grow(job, 1),
        lambda: story.shrink(job, tasks=[1], at_once=True),
        lambda: story.kill(job),
        lambda: story.submit(1),
    ):
        with pytest.raises(RefusedError) as refused:
            act()
        assert refused.value.code == "unavailable"
    # An incarnation of before the restore is over; what lives is listed, not stopped.
    assert story.fetch("h1") == []
    story.register("h1", live(job, 0, 7))
    assert story.fetch("h1") == []
    assert unknown(story) == [("h1", job, 1, 7)]
    story.conn.execute("savepoint before")
    with pytest.raises(psycopg.Error) as raised, story.worker_of("h1"):
        story.one("select xce.worker_report(%s, '[]')", story.incarnations["h1"])
    assert raised.value.sqlstate == "RZ410"
    story.conn.execute("rollback to before")

    assert story.one("select xce.end_restore('{}')") == ["h2", "h3"]
    story.register("h2", live(job, 1))
    assert story.one("select xce.end_restore('{}')") == ["h3"]
    assert story.one("select xce.end_restore('{h3}')") == []
    assert story.tasks(job) == {0: "running", 1: "running"}
    story.lead()
    story.fetch("h1")
    story.place(story.start_of(waiting), {"h1": 1})
    assert len(story.fetch("h1")) == 2


def test_numbers_of_the_lost_future_are_not_given_again(story: Story) -> None:
    before = story.submit(1)
    story.conn.execute("select xce.begin_restore()")
    assert story.one("select xce.end_restore('{h1,h2,h3}')") == []
    assert story.submit(1) > before + 1_000_000
