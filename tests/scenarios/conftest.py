"""One real cluster for all scenarios, and what a scenario says of it."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from app.client.client import Client
from app.wire.jobs import Job, JobSubmit
from app.wire.resizes import Resize, ResizeAsk
from tests.system.processes import Up, eventually, read, up

#: Ignores the stop signal; KILL alone ends it.
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
]


class Live:
    """The owner's client of a running cluster, with waits for facts."""

    def __init__(self, cluster: Up) -> None:
        self.cluster = cluster
        self.client: Client = cluster.client()
        self.operator: Client = cluster.client(is_operator=True)

    def submit(self, *command: str, **members: object) -> int:
        job = self.client.submit(JobSubmit(command=list(command), **members))  # type: ignore[arg-type]
        return job.id

    def running(self, *command: str, tasks: int = 1, **members: object) -> int:
        """A job all of whose tasks run."""
        job_id = self.submit(*command, tasks=tasks, **members)
        self.size(job_id, tasks)
        return job_id

    def size(self, job_id: int, tasks: int) -> Job:
        """The job once exactly so many tasks run and no others are open."""
        eventually(lambda: self.states(job_id) == ["running"] * tasks, f"{tasks} running tasks")
        return self.client.job(job_id)

    def states(self, job_id: int) -> list[str]:
        return [task.state for task in self.client.tasks(job_id)]

    def hosts(self, job_id: int) -> Mapping[int, str]:
        return {task.index: task.host for task in self.client.tasks(job_id)}

    def grow(self, job_id: int, tasks: int, **members: object) -> Resize:
        return self.client.resize(job_id, ResizeAsk(grow=tasks, **members))  # type: ignore[arg-type]

    def grown(self, job_id: int, tasks: int, **members: object) -> Resize:
        return self.final(self.grow(job_id, tasks, **members), "running")

    def final(self, request: Resize, state: str, *, within_s: float = 15.0) -> Resize:
        def reached() -> Resize | None:
            now = self.client.request(request.id)
            assert now.finished_at is None or now.state == state, now
            return now if now.state == state else None

        found = eventually(reached, f"request {request.id} {state}", within_s=within_s)
        assert found is not None
        return found

    def ended(self, job_id: int, *, within_s: float = 15.0) -> Job:
        def over() -> Job | None:
            job = self.client.job(job_id)
            return job if job.state in ("done", "exited") else None

        found = eventually(over, f"the end of job {job_id}", within_s=within_s)
        assert found is not None
        return found

    def used(self) -> dict[str, int]:
        return {host.name: host.cpus_used for host in self.operator.hosts()}

    def worker_of(self, host: str) -> int:
        return int(self.cluster.state["pids"]["workers"][int(host[1:]) - 1])

    def keeper_of(self, host: str) -> int:
        return int(self.cluster.state["pids"]["keepers"][int(host[1:]) - 1])

    def processes_of(self, job_id: int) -> list[int]:
        """This cluster's processes of a job, all alive at one moment.

        Reading /proc takes a while, in which old ones end and new ones start: those that are
        still there after the last was found were there together. Another cluster on the machine
        numbers its jobs alike, so it is the run folder that tells.
        """
        hosts = f"XCE_RUN_DIR={self.cluster.folder}/hosts/".encode()

        def carries(pid: int) -> bool:
            variables = read(Path(f"/proc/{pid}/environ")).split(b"\0")
            number = f"XCE_JOB_ID={job_id}".encode()
            return number in variables and any(each.startswith(hosts) for each in variables)

        found = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
        found = [pid for pid in found if carries(pid)]
        return [pid for pid in found if carries(pid)]


@pytest.fixture(scope="session")
def scenario_cluster() -> Iterator[Up]:
    with up("--workers", "3", "--cpus", "3") as cluster:
        yield cluster


@pytest.fixture
def live(scenario_cluster: Up) -> Iterator[Live]:
    """All three hosts are up and empty before and after; every rule holds in the end."""
    told = Live(scenario_cluster)
    eventually(lambda: {host.state for host in told.operator.hosts()} == {"up"}, "all hosts up")
    yield told
    for job in told.client.jobs():
        if job.state not in ("done", "exited"):
            told.client.kill(job.id)
            told.ended(job.id, within_s=20)
    for host in told.operator.hosts():
        if host.state != "up":
            told.operator.resume(host.name)
    assert told.used() == {"h1": 0, "h2": 0, "h3": 0}
    scenario_cluster.check()
