"""The demo's job, seen and changed over REST only, as its owner would."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from app.client.client import Client
from app.daemons.local_cluster import LocalCluster
from app.wire.jobs import JobSubmit, Task
from app.wire.reports import HistoryItem, Usage
from app.wire.resizes import FINAL_STATES, Resize, ShrinkAsk

Found = TypeVar("Found")
PATIENCE_S = 20.0
LOOK_S = 0.05


class DemoJob:
    """One job, from its submission on."""

    def __init__(self, cluster: LocalCluster, ask: JobSubmit) -> None:
        self.client = Client.from_environment(
            {"XCE_API_URL": cluster.api, "XCE_TOKEN_FILE": str(cluster.owner_token_file)}
        )
        self.id = self.client.submit(ask).id

    def close(self) -> None:
        self.client.close()

    def grow(self, tasks: int) -> Resize:
        return self.client.grow(self.id, tasks)

    def release(self, host: str) -> Resize:
        return self.client.shrink(self.id, ShrinkAsk(hosts=[host]))

    def wait_for_size(self, tasks: int) -> None:
        awaited(
            lambda: self.client.job(self.id).running_tasks == tasks or None,
            f"{tasks} running tasks",
        )

    def wait_for_end(self, request: Resize) -> Resize:
        """The request as soon as its state is final."""

        def ended() -> Resize | None:
            now = self.client.request(request.id)
            return now if now.state in FINAL_STATES else None

        return awaited(ended, f"the end of request {request.id}")

    def wait_for_reason(self, request: Resize) -> str:
        """Why a request that waits does so, as soon as a tick has said it."""
        return awaited(lambda: self.client.request(request.id).reason, "a reason")

    def state(self) -> str:
        return self.client.job(self.id).state

    def size(self) -> int:
        return self.client.job(self.id).tasks

    def tasks(self, *, is_all: bool = False) -> list[Task]:
        return list(self.client.tasks(self.id, is_all=is_all))

    def requests(self, *, is_all: bool = False) -> list[Resize]:
        return list(self.client.requests(self.id, is_all=is_all))

    def history(self, request: Resize) -> list[HistoryItem]:
        return list(self.client.request_history(request.id))

    def usage(self) -> Usage:
        return self.client.usage(self.id)

    def sizes(self) -> list[tuple[float, int]]:
        """Every size the job had, with the seconds from its first; from the tasks' own times."""
        changes: Counter[datetime] = Counter()
        for task in self.tasks(is_all=True):
            changes[task.assigned_at] += 1
            if task.ended_at is not None:
                changes[task.ended_at] -= 1
        sizes: list[tuple[float, int]] = []
        size, first = 0, min(changes)
        for moment in sorted(changes):
            size += changes[moment]
            sizes.append(((moment - first).total_seconds(), size))
        return sizes


def awaited(look: Callable[[], Found | None], what: str) -> Found:
    """What `look` finds, as soon as it finds something."""
    give_up_at_s = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"waited {PATIENCE_S:g} s for {what}")
        time.sleep(LOOK_S)
    return found
