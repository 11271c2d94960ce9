"""Case H08: a job is shrunk again and again, and every interface says the same each time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.client.errors import ApiError
from app.wire.resizes import ResizeAsk, ShrinkAsk
from tests.scenarios.conftest import Live

XCECLI = str(Path(sys.executable).with_name("xcecli"))

Figures = tuple[int, list[str], int, list[tuple[int, str]]]
"""Size, hosts, cpus in use, and tasks by index and host."""


def over_rest(live: Live, job_id: int) -> Figures:
    job = live.client.job(job_id)
    in_use = sum(live.used().values())
    return job.tasks, job.hosts, in_use, sorted(live.hosts(job_id).items())


def over_cli(live: Live, job_id: int) -> Figures:
    def printed(*arguments: str) -> Any:
        address = {
            "XCE_API_URL": live.cluster.told["api"],
            "XCE_TOKEN_FILE": live.cluster.told["owner_token_file"],
        }
        command = [XCECLI, *arguments, "-o", "json"]
        answer = subprocess.run(command, env=address, capture_output=True, check=True, timeout=30)
        return json.loads(answer.stdout)

    job, tasks = printed("job", str(job_id)), printed("tasks", str(job_id))["items"]
    in_use = sum(host["cpus_used"] for host in printed("hosts")["items"])
    placed = sorted((task["index"], task["host"]) for task in tasks)
    return job["tasks"], job["hosts"], in_use, placed


@pytest.mark.timeout(60)
def test_h08_a_job_is_shrunk_three_times_and_never_below_its_minimum(live: Live) -> None:
    job = live.running("sleep", "600", tasks=4, min_tasks=1, max_tasks=4)
    left = list(live.hosts(job).items())
    for size in (3, 2, 1):
        index, _ = left.pop()
        shrink = live.client.resize(job, ResizeAsk(shrink=ShrinkAsk(tasks=[index])))
        live.final(shrink, "released")
        assert (
            over_rest(live, job)
            == over_cli(live, job)
            == (
                size,
                sorted({host for _, host in left}),
                size,
                sorted(left),
            )
        )
    before = live.client.job(job)
    with pytest.raises(ApiError) as refused:
        live.client.resize(job, ResizeAsk(shrink=ShrinkAsk(count=1)))
    assert refused.value.code == "below_min"
    assert live.client.job(job) == before
