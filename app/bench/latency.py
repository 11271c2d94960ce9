"""How long a grow takes to a running process, and a shrink to free room, on an idle system."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

from app.bench.endpoint import Endpoint
from app.bench.floor import Floor
from app.bench.neighbours import Neighbours
from app.bench.stopwatch import Spread, now_ns
from app.daemons.keeper_watch import KeeperWatch
from app.daemons.local_cluster import LocalCluster, local_cluster
from app.db.connect import connect_now
from app.db.doorbell import WATCH

RATIO_MAX = 3.0
AIM = 2.2
WARM_UP = 20
SETTLE_S = 0.03
PATIENCE_S = 10.0
GROWN = "select r.state = 'running' from xce.resize_request r where r.id = %s"
SHRUNK = """
    select r.state = 'released' and h.cpus_used = 1
      from xce.resize_request r
           cross join xce.host h
     where r.id = %s
       and h.name = 'h1'
"""
JOB = {"command": ["sleep", "600"], "tasks": 1, "min_tasks": 1, "max_tasks": 2, "cpus": 1}


@dataclass(frozen=True)
class Samples:
    """Nanoseconds, one list for each of the four things that were timed."""

    floor_grow: list[int]
    grow: list[int]
    floor_shrink: list[int]
    shrink: list[int]


def run(*, samples: int, gap_s: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The benchmark's JSON object; prints its table through `say`."""
    say("starting a cluster with durable commits")
    with local_cluster(["--workers", "1", "--cpus", "4"]) as cluster:
        pids = cluster.pids()
        own = [os.getpid(), pids["postgres"], *pids["keepers"]]
        neighbours = Neighbours(own)
        measured = measure(cluster, samples=samples, gap_s=gap_s, say=say)
        cores = neighbours.cores()
    return report(measured, cores, say)


def measure(
    cluster: LocalCluster, *, samples: int, gap_s: float, say: Callable[[str], None]
) -> Samples:
    """Floor and measurement in turn, each after the same idle gap."""
    endpoint = Endpoint(cluster.api, cluster.owner_token_file)
    floor = Floor(endpoint, cluster.database_url)
    resizes = Resizes(cluster, endpoint)
    taken = Samples([], [], [], [])
    steps = (
        (taken.floor_grow, floor.grow_ns),
        (taken.grow, resizes.grow_ns),
        (taken.floor_shrink, floor.shrink_ns),
        (taken.shrink, resizes.shrink_ns),
    )
    try:
        for i in range(-WARM_UP, samples):
            for kept, step in steps:
                time.sleep(gap_s)
                took_ns = step()
                if i >= 0:
                    kept.append(took_ns)
            if i > 0 and i % 100 == 0:
                say(f"{i} of {samples} samples")
    finally:
        resizes.close()
        floor.close()
        endpoint.close()
    return taken


class Resizes:
    """Grows a job from one task to two and shrinks it back, over REST like any client."""

    def __init__(self, cluster: LocalCluster, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._keeper = KeeperWatch(host_folder(cluster))
        self._watcher = connect_now(cluster.database_url, application="xce bench")
        self._watcher.execute(f"listen {WATCH}")
        self._job = int(endpoint.post("/v1/jobs", JOB)["id"])
        self._index = 0
        self._wait_for_size(1)

    def grow_ns(self) -> int:
        """From the client's send to the stamp that the child took right before exec."""
        sent_ns = now_ns()
        asked = self._endpoint.post(f"/v1/jobs/{self._job}/resizes", {"grow": 1})
        # The stamp is the child's: when this program looks does not matter, so it looks late.
        time.sleep(SETTLE_S)
        self._await(GROWN, asked["id"])
        (self._index,) = self._endpoint.get(f"/v1/resizes/{asked['id']}")["task_indices"]
        return self._exec_at_ns() - sent_ns

    def shrink_ns(self) -> int:
        """From the client's send to when another connection has seen it released, the room free."""
        sent_ns = now_ns()
        ask = {"shrink": {"tasks": [self._index]}}
        asked = self._endpoint.post(f"/v1/jobs/{self._job}/resizes", ask)
        self._await(SHRUNK, asked["id"])
        return now_ns() - sent_ns

    def close(self) -> None:
        self._endpoint.post(f"/v1/jobs/{self._job}/kill")
        self._keeper.close()
        self._watcher.close()

    def _await(self, query: LiteralString, request_id: int) -> None:
        """Look, and look again at each ring, until the query says yes."""
        give_up_at_s = time.monotonic() + PATIENCE_S
        while True:
            row = self._watcher.execute(query, (request_id,)).fetchone()
            if row is not None and row[0]:
                return
            if time.monotonic() > give_up_at_s:
                raise AssertionError(f"request {request_id} did not end within {PATIENCE_S} s")
            for _ in self._watcher.notifies(timeout=0.05, stop_after=1):
                pass

    def _exec_at_ns(self) -> int:
        for task in self._keeper.tasks():
            if (task["job_id"], task["index"]) == (self._job, self._index):
                return int(task["exec_at_monotonic_ns"])
        raise AssertionError(f"the keeper knows no task {self._index}")

    def _wait_for_size(self, tasks: int) -> None:
        give_up_at_s = time.monotonic() + PATIENCE_S
        while self._endpoint.get(f"/v1/jobs/{self._job}")["running_tasks"] != tasks:
            if time.monotonic() > give_up_at_s:
                raise AssertionError("the job did not start")
            time.sleep(0.02)


def host_folder(cluster: LocalCluster) -> Path:
    return cluster.state_file.parent / "hosts" / "h1"


def report(taken: Samples, cores: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Print the table and make the JSON object."""
    spreads = {
        "grow": (Spread.of(taken.grow), Spread.of(taken.floor_grow)),
        "shrink": (Spread.of(taken.shrink), Spread.of(taken.floor_shrink)),
    }
    figures: dict[str, float] = {}
    floors: dict[str, float] = {}
    say("")
    say(f"{'':8}{'n':>5}{'p50 ms':>9}{'floor':>8}{'ratio':>7}{'p99 ms':>9}{'floor':>8}{'ratio':>7}")
    for name, (ours, floor) in spreads.items():
        p50, p99 = ours.p50_ms / floor.p50_ms, ours.p99_ms / floor.p99_ms
        say(
            f"{name:8}{ours.n:5}{ours.p50_ms:9.2f}{floor.p50_ms:8.2f}{p50:7.2f}"
            f"{ours.p99_ms:9.2f}{floor.p99_ms:8.2f}{p99:7.2f}"
        )
        figures |= {
            f"{name}_p50_ms": round(ours.p50_ms, 3),
            f"{name}_p99_ms": round(ours.p99_ms, 3),
            f"{name}_p50_ratio": round(p50, 3),
            f"{name}_p99_ratio": round(p99, 3),
        }
        floors |= {
            f"{name}_p50_ms": round(floor.p50_ms, 3),
            f"{name}_p99_ms": round(floor.p99_ms, 3),
        }
    ratios = [value for name, value in figures.items() if name.endswith("ratio")]
    figures |= {"samples": len(taken.grow), "other_processes_cores": round(cores, 2)}
    say("")
    say(f"wanted: every ratio at most {RATIO_MAX:g} (aim at the p50: {AIM:g})")
    say(f"other processes used {cores:.2f} of {os.cpu_count()} cores meanwhile")
    is_ok = max(ratios) <= RATIO_MAX
    return {"bench": "latency", "ok": is_ok, "figures": figures, "floor": floors}
