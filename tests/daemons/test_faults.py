"""A fault of ours costs the decision that it is in, never the loop that met it."""

from app.db.doorbell import Doorbell
from app.db.pg_store import PgStore
from app.model import Policy
from app.scheduling import tick
from tests.support.cluster import Database
from tests.support.story import Story


async def test_a_decision_that_the_database_cannot_take_holds_up_no_other(
    database: Database,
) -> None:
    with database.connect() as conn:
        story = Story(conn)
        story.host("h1")
        broken, other = story.submit(1), story.submit(1)
        conn.execute(
            f"alter table xce.task add constraint x_ck check (job_id <> {broken})".encode()
        )
        doorbell = Doorbell(database.url)
        store = PgStore(database.url, doorbell)
        store.epoch = story.lead()
        report = await tick(store, Policy())
        await store.close()
        await doorbell.close()
        assert (report.accepted, report.refused) == (1, {"fault": 1})
        assert story.job(broken)["state"] == "pending"
        assert story.tasks(other) == {0: "assigned"}
