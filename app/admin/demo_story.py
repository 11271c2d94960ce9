"""The demo's story: what is asked for, one step after the other, and what came of it."""

import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from app.admin import demo_farm
from app.admin.demo_job import DemoJob
from app.admin.demo_queue import Queue
from app.admin.demo_report import print_report
from app.daemons.local_cluster import LocalCluster, local_cluster
from app.wire.jobs import JobSubmit

HOSTS = 3
CPUS = 2
TASKS = 2
GROWN = 5
TASKS_MAX = 8
WINDOW_S = 3.5
#: Work for so long: 2 tasks, then 5, then what the shrink leaves. Lexing is not all that a task
#: does for a file, so that it takes half as long again.
TASK_SECONDS = (2 * 4 + 5 * 4 + 3 * 9) / 1.5
CLOSING_S = 28.0


def tell() -> None:
    """Run the whole demo; prints the report and, last of all, the JSON object."""
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="xce-demo-") as folder:
        say("starting PostgreSQL, a controller and three hosts with two cpus each")
        with local_cluster(["--workers", str(HOSTS), "--cpus", str(CPUS)]) as cluster:
            say(f"the cluster is up after {time.monotonic() - started_s:.1f} s")
            queue = Queue(Path(folder), task_seconds=TASK_SECONDS)
            result = act(cluster, queue, closes_at_s=started_s + CLOSING_S)
            say("stopping the cluster")
    say(f"done in {time.monotonic() - started_s:.1f} s, nothing is left behind")
    print(json.dumps(result), flush=True)


def act(cluster: LocalCluster, queue: Queue, *, closes_at_s: float) -> dict[str, Any]:
    """Submit the farm to a cluster that is up; the JSON object."""
    command = [sys.executable, "-I", "-S", demo_farm.__file__, str(queue.folder)]
    ask = JobSubmit(command=command, name="farm", tasks=TASKS, min_tasks=1, max_tasks=TASKS_MAX)
    with closing(DemoJob(cluster, ask)) as job:
        return play(job, queue, closes_at_s)


def play(job: DemoJob, queue: Queue, closes_at_s: float) -> dict[str, Any]:
    """All steps, one after the other."""
    say(
        f"job {job.id}: {TASKS} tasks lex {queue.left()} source files of this Python, claimed one "
        "by one;"
    )
    say(
        f"  each works {demo_farm.DUTY:.0%} of its time and rests the remainder, so that five fit "
        "on a small machine"
    )
    job.wait_for_size(TASKS)
    before = throughput(queue)
    grow(job, GROWN - TASKS)
    after = throughput(queue)
    say(f"files per second: {before:.1f} with {TASKS} tasks, {after:.1f} with {GROWN}")
    shrink(job)
    ask_for_too_much(job)
    work_off(job, queue, closes_at_s)
    usage = job.usage()
    print_report(job, rates=((TASKS, before), (GROWN, after)), usage=usage, files=queue.done())
    return {
        "sizes": [size for _, size in job.sizes()],
        "requests": [
            {"id": request.id, "kind": request.kind, "state": request.state}
            for request in job.requests()
        ],
        "files_done": queue.done(),
        "task_seconds": float(usage.task_seconds),
        "cpu_seconds": float(usage.cpu_seconds),
    }


def throughput(queue: Queue) -> float:
    """Files per second, over one window."""
    started_s, done = time.monotonic(), queue.done()
    time.sleep(WINDOW_S)
    return (queue.done() - done) / (time.monotonic() - started_s)


def grow(job: DemoJob, count: int) -> None:
    ended = job.wait_for_end(job.grow(count))
    say(f"request {ended.id}: grow by {count}: {ended.state} on {', '.join(ended.hosts)}")


def shrink(job: DemoJob) -> None:
    """Release a whole host by name, but never the head task's."""
    tasks = job.tasks()
    head = next(task.host for task in tasks if task.index == 0)
    [(host, _)] = Counter(task.host for task in tasks if task.host != head).most_common(1)
    ended = job.wait_for_end(job.release(host))
    say(f"request {ended.id}: release of {host}: {ended.state}, {job.size()} tasks left")


def ask_for_too_much(job: DemoJob) -> None:
    """Ask for more than is free, within the job's maximum, and think better of it."""
    request = job.grow(TASKS_MAX - job.size())
    reason = job.wait_for_reason(request)
    say(f"request {request.id}: grow by {request.tasks_asked}: waits, reason {reason}")
    ended = job.client.cancel(request.id)
    say(f"request {ended.id}: {ended.state}")


def work_off(job: DemoJob, queue: Queue, closes_at_s: float) -> None:
    """Let the job end by itself; on a very slow machine some files are left alone."""
    told_s = 0.0
    while job.state() not in ("done", "exited"):
        now_s = time.monotonic()
        if now_s > closes_at_s and queue.close():
            say(f"this machine is busy: {queue.left()} files are not done any more")
        if now_s - told_s > 2:
            say(f"{queue.left()} files are left")
            told_s = now_s
        time.sleep(0.1)
    say(f"job {job.id} has ended: {job.state()}")


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
