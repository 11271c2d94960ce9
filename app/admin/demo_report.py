"""The demo's tables: sizes over time, the story of each request, and the bill."""

from collections.abc import Sequence
from datetime import datetime

from app.admin.demo_job import DemoJob
from app.wire.reports import Usage

BAR_MAX = 40


def print_report(
    job: DemoJob, *, rates: Sequence[tuple[int, float]], usage: Usage, files: int
) -> None:
    """All tables, on stdout."""
    print_sizes(job)
    print_requests(job)
    print_rates(rates)
    print_bill(usage, files)


def print_sizes(job: DemoJob) -> None:
    print("\nSizes over time (from the commits that changed the allocation)")
    print(f"{'after s':>9}  tasks")
    for at_s, size in job.sizes():
        print(f"{at_s:9.3f}  {size:5}  {'█' * size}")


def print_requests(job: DemoJob) -> None:
    print("\nHistory of each request")
    print(
        f"{'request':>7}  {'kind':6}  {'after s':>9}  {'event':9}  {'state':9}  {'by':10}  reason"
    )
    first: datetime | None = None
    for request in job.requests(is_all=True):
        for move in job.history(request):
            first = first or move.at
            print(
                f"{request.id:7}  {request.kind:6}  {(move.at - first).total_seconds():9.3f}  "
                f"{move.event:9}  {move.target:9}  {move.actor:10}  {move.reason or ''}"
            )


def print_rates(rates: Sequence[tuple[int, float]]) -> None:
    print("\nThroughput (files per second over a window at each size)")
    most = max(rate for _, rate in rates) or 1.0
    for tasks, rate in rates:
        print(f"{tasks:3} tasks  {rate:7.1f}  {'█' * round(rate / most * BAR_MAX)}")


def print_bill(usage: Usage, files: int) -> None:
    print("\nCharged, exact to the microsecond (summed in the database over allocation ranges)")
    print(f"  task-seconds  {usage.task_seconds:14.6f}")
    print(f"  cpu-seconds   {usage.cpu_seconds:14.6f}")
    print(f"  cpu used      {usage.cpu_used_s:14.6f}")
    print(f"  files done    {files:7}\n")
