"""When a token was last used is known, and costs the calls nothing."""

from pathlib import Path
from typing import Any

import pytest

from app.api.last_used import LastUsed
from app.db.connect import open_pool
from tests.api.world import World, running_world
from tests.support.cluster import Database

LAST_USED = """
    select u.name, extract(epoch from clock_timestamp() - t.last_used_at)::float8
      from xce.token t
      join xce.user_account u on u.id = t.user_id
     order by 1
"""


def ages_s(database: Database) -> dict[str, Any]:
    with database.connect() as conn:
        return dict(conn.execute(LAST_USED).fetchall())


def test_a_used_token_is_known_as_such_and_a_refused_one_is_not(
    database: Database, tmp_path: Path
) -> None:
    with running_world(database, tmp_path) as world:
        alice, bob = world.user("alice"), world.user("bob")
        assert alice.get("/v1/jobs").status == 200
        assert bob.token is not None
        with database.connect() as conn:
            conn.execute("update xce.token set revoked_at = now() where user_id = 2")
        assert bob.get("/v1/jobs").status == 401
        assert ages_s(database)["alice"] is None, "no call waits for it"
    # What is not written by then is written when the API stops.
    found = ages_s(database)
    assert 0 <= found["alice"] < 60
    assert found["bob"] is None


@pytest.mark.parametrize(("known_s", "age_s", "wanted_s"), [
    (None, 5, 5), (300, 5, 5), (61, 0, 0), (59, 0, 59), (20, 5, 20), (20, 100, 20), (1, -9, 1),
])  # fmt: skip
async def test_it_is_written_once_a_minute_and_never_backwards(
    database: Database, world: World, known_s: float | None, age_s: float, wanted_s: float
) -> None:
    world.user("alice")
    with database.connect() as conn:
        conn.execute(
            "update xce.token set last_used_at = clock_timestamp() - make_interval(secs => %s)",
            [known_s],
        )
        conn.execute("select xce.touch_tokens('{1, 77}', array[%s, 0]::float8[])", [age_s])
    assert ages_s(database)["alice"] == pytest.approx(wanted_s, abs=0.9)


async def test_while_the_database_is_away_it_is_kept(database: Database, world: World) -> None:
    world.user("alice")
    used = LastUsed()
    used.note(1)
    nowhere = await open_pool(
        "postgresql://nobody@127.0.0.1:1/none", size_max=1, application="xce test"
    )
    nowhere.timeout = 0.1
    await used.write(nowhere)
    await nowhere.close()
    pool = await open_pool(database.url, size_max=1, application="xce test")
    await used.write(pool)
    first = ages_s(database)["alice"]
    assert first is not None
    # Nothing new, nothing to write: this pool could not.
    await used.write(nowhere)
    await pool.close()
