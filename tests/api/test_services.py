"""After a commit whoever has to move is woken: at once in this process, by doorbell elsewhere."""

import asyncio
from typing import cast

from litestar import Litestar

from app.api.services import ApiSettings, Services
from app.api.terms import job_body
from app.db.connect import connect
from app.db.doorbell import PLAN, Listener
from app.db.jobs import SubmitCall
from app.db.statements import statement
from app.wire.jobs import JobSubmit
from tests.support.cluster import Database


async def test_a_commit_sets_the_schedulers_event_and_rings(database: Database) -> None:
    conn = await connect(database.url)
    cursor = await conn.execute("select xce.add_user('alice', false, null)")
    row = await cursor.fetchone()
    await conn.close()
    assert row is not None
    wake = asyncio.Event()
    services = Services(ApiSettings(database.url, scheduler_wake=wake))
    listener = Listener(database.url, [PLAN])
    listening = asyncio.create_task(listener.run())
    # Set once when it listens; only what comes after that is a ring.
    await listener.event(PLAN).wait()
    listener.event(PLAN).clear()
    call = SubmitCall(
        user_id=row[0],
        is_operator=False,
        origin="owner",
        key=None,
        method="POST",
        path="/v1/jobs",
        body_sha256="",
        body=job_body(JobSubmit(command=["true"])),
    )
    async with services.lifespan(cast(Litestar, None)):
        answer = await services.commit(statement("submit_job"), call)
        assert answer.ok
        assert wake.is_set()
        await asyncio.wait_for(listener.event(PLAN).wait(), 5)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
