"""One leads, by the database's clock; nobody believes to lead for longer than that."""

from collections.abc import Callable

import pytest

from app.db import lease as lease_module
from app.db.chores import Housekeeping
from app.db.errors import EpochOver, Unavailable
from app.db.lease import Lease
from tests.support.cluster import Database

EXPIRE = "update xce.lease set expires_at = pg_catalog.clock_timestamp() - interval '1 ms'"
HANG_UP = """
    select pg_catalog.pg_terminate_backend(pid)
      from pg_catalog.pg_stat_activity
     where datname = pg_catalog.current_database()
       and application_name = 'xce lease'
"""


async def test_one_leads_and_the_other_follows_at_once_when_it_drops(database: Database) -> None:
    first, second = Lease(database.url, "first"), Lease(database.url, "second")
    epoch = await first.renew()
    assert epoch is not None
    assert await second.renew() is None
    assert await first.renew() == epoch
    await first.drop()
    assert first.epoch is None
    assert await second.renew() == epoch + 1
    await second.drop()


async def test_of_an_expired_lease_the_old_epoch_can_do_nothing(database: Database) -> None:
    first, second = Lease(database.url, "first"), Lease(database.url, "second")
    epoch = await first.renew()
    assert epoch is not None
    with database.connect() as conn:
        conn.execute(EXPIRE)
    assert await second.renew() == epoch + 1
    chores = Housekeeping(database.url)
    with pytest.raises(EpochOver):
        await chores.sweep_silence(epoch, None)
    assert (await chores.sweep_silence(epoch + 1, None)).verdict == "judged"
    for chore in (chores.sweep_deadlines, chores.settle_due):
        with pytest.raises(EpochOver):
            await chore(epoch)
        assert await chore(epoch + 1) == []
    assert await chores.expire_rows(epoch + 1) == []
    assert await first.renew() is None
    await chores.close()
    await first.drop()
    await second.drop()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the local clock, in seconds from the test's start."""
    now_s = lease_module.elapsed_s()

    def move(seconds: float) -> None:
        monkeypatch.setattr(lease_module, "elapsed_s", lambda: now_s + seconds)

    move(0)
    return move


async def test_a_leader_that_could_not_renew_stops_by_its_own_clock(
    database: Database, later: Callable[[float], None]
) -> None:
    lease = Lease(database.url, "first")
    epoch = await lease.renew()
    later(4.9)
    assert lease.epoch == epoch
    later(5.0)
    assert lease.epoch is None
    await lease.drop()


async def test_a_lease_says_when_the_database_is_away_and_comes_back(database: Database) -> None:
    away = Lease(database.url.replace(f"/{database.name}", "/nowhere"), "first")
    with pytest.raises(Unavailable):
        await away.renew()
    lease = Lease(database.url, "first")
    epoch = await lease.renew()
    with database.connect() as conn:
        conn.execute(HANG_UP)
    with pytest.raises(Unavailable):
        await lease.renew()
    assert await lease.renew() == epoch
    assert (await lease.settings())["lease_s"] == 5.0
    await lease.drop()
