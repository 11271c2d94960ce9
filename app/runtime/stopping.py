"""Turns SIGTERM and SIGINT into an event that the loops of a daemon wait for."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

CANCEL_AGAIN_S = 1.0


def stopping_event() -> asyncio.Event:
    """An event set by the first SIGTERM or SIGINT; call it inside the running loop."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


async def cancelled(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Cancel tasks until all have ended; what each ended with, exceptions included."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        # Once is not enough: before Python 3.12 asyncio.wait_for, which psycopg's pool waits with,
        # loses a cancellation that comes together with its result.
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def wait_any(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Wait until one of the events is set; False when the time was up first."""
    if any(event.is_set() for event in events):
        return True
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


async def wait_for(event: asyncio.Event, *, timeout_s: float) -> bool:
    """Wait for one event; False when the time was up first. Makes no task, so it is quick."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def until(stopping: asyncio.Event, *loops: Coroutine[Any, Any, None]) -> None:
    """Run loops that never end by themselves until `stopping`; a loop that fails ends them all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop) for loop in loops]
        await stopping.wait()
        for task in tasks:
            task.cancel()
