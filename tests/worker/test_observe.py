"""A keeper that ails is waited for; it never ends the worker."""

import asyncio
import json
from pathlib import Path

from app.worker.keeper_client import SOCKET
from app.worker.observe import Processes


async def test_a_keeper_that_refuses_its_list_is_asked_again_and_ends_nothing(
    tmp_path: Path,
) -> None:
    asked = 0
    twice = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while line := await reader.readline():
            asked += 1
            if asked == 2:
                twice.set()
            number = json.loads(line)["id"]
            answer = {"id": number, "ok": False, "code": "system", "detail": "no descriptors"}
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_unix_server(refuse, tmp_path / SOCKET)
    processes = Processes(tmp_path)
    running = asyncio.create_task(processes.run())
    async with asyncio.timeout(10):
        await twice.wait()
    assert not running.done()
    assert not processes.are_known
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await processes.close()
    server.close()
    await server.wait_closed()
