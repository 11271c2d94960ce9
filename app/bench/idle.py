"""What daemons cost while nothing happens: CPU as a share of one core, and resident memory."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app.bench.neighbours import Neighbours
from app.daemons.local_cluster import local_cluster

CONTROLLER_PERCENT_MAX = 1.0
HOST_PERCENT_MAX = 0.2
HOST_MIB_MAX = 60.0
SETTLE_S = 5.0


def run(*, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The benchmark's JSON object; the floor of doing nothing is nothing."""
    say("starting a cluster with one job that sleeps")
    with local_cluster(["--workers", "1", "--cpus", "4"]) as cluster:
        pids = cluster.pids()
        controller, host = pids["controllers"], [*pids["workers"], *pids["keepers"]]
        time.sleep(SETTLE_S)
        neighbours = Neighbours([os.getpid(), pids["postgres"], *pids["keepers"]])
        before = [cpu_s(controller), cpu_s(host)]
        started_s = time.monotonic()
        say(f"looking on for {seconds:g} s")
        time.sleep(seconds)
        passed_s = time.monotonic() - started_s
        shares = [
            100 * (now - then) / passed_s
            for now, then in zip([cpu_s(controller), cpu_s(host)], before, strict=True)
        ]
        memory = [memory_mib(controller), memory_mib(host)]
        cores = neighbours.cores()
    return report(shares, memory, cores, say)


def report(
    shares: Sequence[float], memory: Sequence[float], cores: float, say: Callable[[str], None]
) -> dict[str, Any]:
    wanted = (
        f"at most {CONTROLLER_PERCENT_MAX:g} %",
        f"at most {HOST_PERCENT_MAX:g} % and {HOST_MIB_MAX:g} MiB",
    )
    say("")
    say(f"{'':18}{'% of a core':>12}{'MiB':>8}   wanted")
    for name, share, mib, limit in zip(
        ("controller", "worker and keeper"), shares, memory, wanted, strict=True
    ):
        say(f"{name:18}{share:12.2f}{mib:8.1f}   {limit}")
    say(f"other processes used {cores:.2f} of {os.cpu_count()} cores meanwhile")
    is_ok = (
        shares[0] <= CONTROLLER_PERCENT_MAX
        and shares[1] <= HOST_PERCENT_MAX
        and memory[1] <= HOST_MIB_MAX
    )
    figures = {
        "controller_percent": round(shares[0], 3),
        "controller_mib": round(memory[0], 1),
        "host_percent": round(shares[1], 3),
        "host_mib": round(memory[1], 1),
        "other_processes_cores": round(cores, 2),
    }
    return {"bench": "idle", "ok": is_ok, "figures": figures, "floor": {}}


def cpu_s(pids: Sequence[int]) -> float:
    """CPU of all threads, to the nanosecond: what is counted in ticks misses short turns."""
    threads = [path for pid in pids for path in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((path / "schedstat").read_text().split()[0]) for path in threads) / 1e9


def memory_mib(pids: Sequence[int]) -> float:
    """Resident memory, pages that several share counted once for each."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
