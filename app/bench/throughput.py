"""Grow requests a second over HTTP through the whole machine, with stub workers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.bench.endpoint import Endpoint, EndpointError
from app.bench.neighbours import TICKS_PER_S, Neighbours, tree_ticks
from app.daemons.local_cluster import LocalCluster, local_cluster
from app.db.administration import Administration, HostSize
from app.db.connect import connect_now

HOSTS = 8
JOBS = 200
CONNECTIONS = 32
#: A job that has grown so far is shrunk back to one task, unmeasured but at the same time.
SIZE_MAX = 40
WANTED = {1: 1_000.0, 4: 600.0}
DRAIN_S = 30.0
COUNTS = """
    select count(*) filter (where state = 'running'),
           count(*) filter (where state not in ('running', 'pending', 'placed', 'committed')),
           count(*) filter (where is_open)
      from xce.resize_request
     where kind = 'grow'
"""


def run(*, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The benchmark's JSON object: grows of one task, then grows of four."""
    figures: dict[str, float] = {}
    for tasks, wanted in WANTED.items():
        with local_cluster(["--workers", "0"]) as cluster, straw(cluster):
            say(f"{JOBS} jobs, {HOSTS} hosts, {CONNECTIONS} connections, grows of {tasks}")
            jobs = submitted(cluster)
            neighbours = Neighbours([os.getpid(), cluster.pids()["postgres"]])
            before = tree_ticks(frozenset([os.getpid(), cluster.pids()["postgres"]]))
            asked, lasted_s = asked_for(cluster, jobs, tasks=tasks, seconds=seconds)
            granted, lost, still_open = settled(cluster)
            spent = tree_ticks(frozenset([os.getpid(), cluster.pids()["postgres"]])) - before
            per_s = granted / lasted_s
            us = spent / TICKS_PER_S * 1e6 / max(1, granted)
            ended = f"{granted} running, {lost} ended otherwise, {still_open} open"
            say(f"  {asked} accepted, {ended}")
            say(f"  {per_s:.0f}/s (wanted {wanted:.0f}), {us:.0f} µs of CPU each")
            say(f"  other processes used {neighbours.cores():.2f} cores meanwhile")
            figures |= {
                f"grows_{tasks}_per_s": round(per_s, 1),
                f"grows_{tasks}_cpu_us": round(us),
                f"grows_{tasks}_lost": asked - granted,
            }
    is_ok = all(figures[f"grows_{tasks}_per_s"] >= wanted for tasks, wanted in WANTED.items())
    return {"bench": "throughput", "ok": is_ok, "figures": figures, "floor": {}}


@contextlib.contextmanager
def straw(cluster: LocalCluster) -> Iterator[None]:
    """Stub workers in a process of their own, each with the login of its host."""
    with tempfile.TemporaryDirectory() as folder:
        urls = []
        with Administration.open(cluster.database_url) as administration:
            for i in range(HOSTS):
                passfile = Path(folder) / f"s{i}"
                size = HostSize(cpus=JOBS * SIZE_MAX, mem_mib=0)
                urls.append(administration.add_host(f"s{i}", size, passfile=passfile).url)
        process = subprocess.Popen([sys.executable, "-P", "-m", "app.bench.straw", *urls])
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def submitted(cluster: LocalCluster) -> list[int]:
    """Jobs of one task that run."""
    endpoint = Endpoint(cluster.api, cluster.owner_token_file)
    body = {"command": ["true"], "tasks": 1, "min_tasks": 1, "max_tasks": SIZE_MAX * 4}
    jobs = [int(endpoint.post("/v1/jobs", body)["id"]) for _ in range(JOBS)]
    for job in jobs:
        while endpoint.get(f"/v1/jobs/{job}")["state"] != "running":
            time.sleep(0.01)
    endpoint.close()
    return jobs


def asked_for(
    cluster: LocalCluster, jobs: list[int], *, tasks: int, seconds: float
) -> tuple[int, float]:
    """How many grows were accepted, and how long that took."""
    accepted = [0] * CONNECTIONS
    until_s = time.monotonic() + seconds

    def ask(place: int) -> None:
        endpoint = Endpoint(cluster.api, cluster.owner_token_file)
        own = jobs[place::CONNECTIONS]
        n = 0
        while time.monotonic() < until_s:
            job = own[n % len(own)]
            n += 1
            try:
                endpoint.post(f"/v1/jobs/{job}/resizes", {"grow": tasks}, key=uuid.uuid4().hex)
                accepted[place] += 1
            except EndpointError as error:
                if json.loads(error.body)["code"] != "above_max":
                    raise
                with contextlib.suppress(EndpointError):
                    endpoint.post(f"/v1/jobs/{job}/resizes", {"to": 1}, key=uuid.uuid4().hex)
        endpoint.close()

    started_s = time.monotonic()
    threads = [threading.Thread(target=ask, args=(place,)) for place in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(accepted), time.monotonic() - started_s


def settled(cluster: LocalCluster) -> tuple[int, int, int]:
    """Grows that are running, that ended otherwise, and that are open when it is given up."""
    give_up_at_s = time.monotonic() + DRAIN_S
    with connect_now(cluster.database_url, application="xce bench") as conn:
        while True:
            row = conn.execute(COUNTS).fetchone()
            assert row is not None
            if not row[2] or time.monotonic() > give_up_at_s:
                return int(row[0]), int(row[1]), int(row[2])
            time.sleep(0.1)
