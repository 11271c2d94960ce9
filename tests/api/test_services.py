"""After a commit whoever has to move is woken: at once in this process, by doorbell elsewhere."""

import asyncio
from typing import cast

import pytest
from litestar import Litestar

from app.api.services import ApiSettings, Services
from app.api.terms import job_body
from app.db.connect import connect
from app.db.doorbell import PLAN, WATCH, Listener
from app.db.jobs import SubmitCall
from app.db.statements import statement
from app.wire.jobs import JobSubmit
from tests.support.cluster import Database


@pytest.mark.parametrize("leads", [True, False])
async def test_a_commit_wakes_this_process_and_rings_unless_it_leads(
    database: Database, *, leads: bool
) -> None:
    conn = await connect(database.url)
    cursor = await conn.execute("select xce.add_user('alice', false, null)")
    row = await cursor.fetchone()
    await conn.close()
    assert row is not None
    woken: list[bool] = []

    def wake() -> bool:
        woken.append(True)
        return leads

    services = Services(ApiSettings(database.url, scheduler_wake=wake))
    listener = Listener(database.url, [PLAN, WATCH])
    listening = asyncio.create_task(listener.run())
    # Set once when it listens; only what comes after that is a ring.
    for channel in (PLAN, WATCH):
        await listener.event(channel).wait()
        listener.event(channel).clear()
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
        assert woken == [True]
        await asyncio.wait_for(listener.event(WATCH).wait(), 5)
        # Both were rung together, and xce_plan sorts before xce_watch.
        assert listener.event(PLAN).is_set() is not leads
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
