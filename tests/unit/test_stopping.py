"""What is cancelled ends, also where a library loses the first cancellation."""

import asyncio
import contextlib

import pytest

from app.runtime import stopping
from app.runtime.stopping import cancelled


async def test_a_task_that_loses_its_first_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "CANCEL_AGAIN_S", 0.01)

    async def deaf() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def done() -> int:
        return 7

    tasks = [asyncio.create_task(deaf()), asyncio.create_task(done())]
    await asyncio.sleep(0)
    first, second = await cancelled(*tasks)
    assert isinstance(first, asyncio.CancelledError)
    assert second == 7
