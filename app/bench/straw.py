"""A process of stub workers: hosts whose tasks are only rows, each with its login and its bell."""

import asyncio
import contextlib
import sys
from typing import Any

import msgspec

from app.db.worker_link import WorkerLink

POLL_S = 1.0


async def serve(url: str) -> None:
    """Claim what is assigned, say at once that it runs, and that it is gone where it is to stop."""
    link = WorkerLink(url)
    terms = msgspec.json.decode(await link.register("straw", "bench", b"[]", folder="straw"))
    incarnation = terms["incarnation"]
    while True:
        link.bell.clear()
        answer = await link.fetch(incarnation, is_clear=True, fence_s=None, is_full=False)
        reports = [said for task in msgspec.json.decode(answer)["tasks"] for said in about(task)]
        if reports:
            await link.report(incarnation, msgspec.json.encode(reports))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await link.bell.wait()


def about(task: dict[str, Any]) -> list[dict[str, Any]]:
    """What a worker would report of one task."""
    named = {name: task[name] for name in ("job_id", "attempt", "index")}
    match task["state"]:
        case "starting":
            return [named | {"event": "up"}]
        case "stopping":
            ended = {"execed": True, "exit_code": None, "signal": 15, "lost": False}
            return [named | {"event": "gone"} | ended]
        case _:
            return []


async def main(urls: list[str]) -> None:
    await asyncio.gather(*(serve(url) for url in urls))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
