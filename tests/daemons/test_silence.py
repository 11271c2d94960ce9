"""When silent hosts are judged: not by a new leader, nor right after the clock jumped."""

from collections.abc import Callable

import pytest

from app.daemons import leadership as leadership_module
from app.daemons import silence as silence_module
from app.daemons.leadership import Leadership
from app.daemons.silence import Silence
from app.db.chores import Housekeeping
from app.db.lease import Lease
from tests.support.cluster import Database
from tests.support.story import Story

Move = Callable[[float], None]


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Move:
    """Sets this machine's clock, in seconds from the test's start."""
    start_s = silence_module.elapsed_s()

    def moved(seconds: float) -> None:
        for module in (silence_module, leadership_module):
            monkeypatch.setattr(module, "elapsed_s", lambda: start_s + seconds)

    moved(0)
    return moved


async def test_32_only_a_leader_of_a_silent_time_judges_and_not_after_a_jump(
    database: Database, move: Move
) -> None:
    with database.connect() as conn:
        story = Story(conn)
        story.host("h1")
        job = story.running_job({"h1": 1}, on_host_loss="exit")
        conn.execute("update xce.lease set expires_at = '-infinity'")
        conn.execute("update xce.heartbeat set last_seen_at = last_seen_at - interval '1 hour'")
        lease = Lease(database.url, "first")
        leadership = Leadership(lease)
        epoch = await lease.renew()
        leadership._note()
        assert epoch is not None
        housekeeping = Housekeeping(database.url)
        silence = Silence(housekeeping, leadership)

        def state() -> str:
            return str(story.one("select state from xce.host where name = 'h1'"))

        move(29.9)
        assert await silence.sweep(epoch) == []
        # Since it looked last this machine counted 0 s, and the database as good as none.
        move(30)
        conn.execute("update xce.heartbeat set last_seen_at = clock_timestamp()")
        assert await silence.sweep(epoch) == []
        conn.execute("update xce.heartbeat set last_seen_at = last_seen_at - interval '1 hour'")
        # This machine counts 10 s meanwhile, the database hardly any: its clock was set back.
        move(40)
        assert await silence.sweep(epoch) == []
        assert state() == "up"
        move(69.9)
        assert await silence.sweep(epoch) == []
        assert state() == "up"
        move(70)
        assert await silence.sweep(epoch) != []
        assert state() == "lost"
        # Its fence counts from the jump, of which nobody knows how much time it hides.
        assert story.tasks(job) == {0: "running"}
        conn.execute("update xce.clock_jump set at = at - interval '1 hour'")
        assert await silence.sweep(epoch) != []
        assert story.tasks(job) == {0: "lost"}
        await housekeeping.close()
        await lease.drop()
