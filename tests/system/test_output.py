"""Output over REST, with real workers: read, followed, resumed, kept small."""

import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.client.client import Client
from app.client.errors import ApiError
from app.client.output import Output
from app.wire.jobs import JobSubmit
from tests.system.processes import Up, eventually, run, up

pytestmark = pytest.mark.timeout(90)

WAIT_FOR_GO = "until test -e go; do sleep 0.05; done"
MIB = 2**20


def shell(program: str, **members: Any) -> JobSubmit:
    return JobSubmit(command=["sh", "-c", program], **members)


def run_folder(cluster: Up, job_id: int, host: str = "h1") -> Path:
    return cluster.folder / "hosts" / host / "jobs" / str(job_id)


def until_state(client: Client, job_id: int, *states: str) -> None:
    eventually(lambda: client.job(job_id).state in states, f"job {job_id} {states}")


def until_running(client: Client, job_id: int, tasks: int = 1) -> None:
    eventually(lambda: client.job(job_id).running_tasks == tasks, f"{tasks} running tasks")


def whole(output: Output) -> bytes:
    read = b""
    try:
        while part := output.read():
            read += part
    finally:
        output.close()
    return read


def first_line(output: Output) -> bytes:
    read = b""
    while not read.endswith(b"\n"):
        part = output.read()
        assert part, read
        read += part
    return read


def logs(cluster: Up, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli.main", "logs", *arguments],
        env={**os.environ, **cli_environment(cluster), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def cli_environment(cluster: Up) -> dict[str, str]:
    token_file = cluster.told["owner_token_file"]
    return {"XCE_API_URL": cluster.told["api"], "XCE_TOKEN_FILE": token_file, "XCE_TOKEN": ""}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Up]:
    with up("--workers", "2", "--cpus", "4") as running:
        yield running


@pytest.fixture
def client(cluster: Up) -> Client:
    return cluster.client()


def test_a_finished_tasks_output_is_read_from_any_offset(cluster: Up, client: Client) -> None:
    job = client.submit(shell("seq 1 100000; echo oops >&2"))
    until_state(client, job.id, "done")
    expected = b"".join(b"%d\n" % n for n in range(1, 100001))
    output = client.output(job.id, 0)
    assert (output.start, output.size, output.attempt) == (0, len(expected), 1)
    assert whole(output) == expected
    output = client.output(job.id, 0, offset=500_000, limit=10)
    assert output.start == 500_000
    assert whole(output) == expected[500_000:500_010]
    assert whole(client.output(job.id, 0, offset=-7)) == b"100000\n"
    assert whole(client.output(job.id, 0, offset=10**9)) == b""
    assert whole(client.output(job.id, 0, stream="stderr")) == b"oops\n"


def test_a_running_task_is_followed_live_to_its_end(cluster: Up, client: Client) -> None:
    job = client.submit(shell(f"echo one; {WAIT_FOR_GO}; echo two"))
    output = client.output(job.id, 0, follow=True)
    assert first_line(output) == b"one\n"
    assert client.job(job.id).state == "running"
    (run_folder(cluster, job.id) / "go").touch()
    assert whole(output) == b"two\n"
    until_state(client, job.id, "done")


def test_patterns_and_other_runs_are_found(cluster: Up, client: Client) -> None:
    program = f"mkdir -p logs; echo $XCE_ATTEMPT $XCE_TASK_INDEX; {WAIT_FOR_GO}"
    job = client.submit(shell(program, tasks=2, stdout="%h-%j.%a.%t"))
    until_running(client, job.id, 2)
    client.requeue(job.id)
    eventually(lambda: client.job(job.id).attempt == 2, "another attempt")
    until_running(client, job.id, 2)

    def said(attempt: int | None) -> bytes:
        return whole(client.output(job.id, 1, attempt=attempt))

    eventually(lambda: said(2) == b"2 1\n", "what the second attempt wrote")
    assert said(1) == b"1 1\n"
    assert said(None) == b"2 1\n"
    client.kill(job.id)


def test_nobody_reads_another_owners_output(cluster: Up, client: Client, tmp_path: Path) -> None:
    job = client.submit(shell("echo mine"))
    until_state(client, job.id, "done")
    url = cluster.told["database_url"]
    assert run("user", "add", "eve", XCE_DATABASE_URL=url).returncode == 0
    token = tmp_path / "eve.token"
    made = run("token", "create", "eve", "--file", str(token), XCE_DATABASE_URL=url)
    assert made.returncode == 0, made.stderr
    eve = Client.from_environment(
        {"XCE_API_URL": cluster.told["api"], "XCE_TOKEN_FILE": str(token)}
    )
    for follow in (False, True):
        with pytest.raises(ApiError, match="not_found"):
            eve.output(job.id, 0, follow=follow)
    eve.close()
    assert whole(cluster.client(is_operator=True).output(job.id, 0)) == b"mine\n"


def test_output_that_was_removed_is_gone(cluster: Up, client: Client) -> None:
    job = client.submit(shell("rm -f $XCE_JOB_ID.*.out; ln -s /etc/passwd $XCE_JOB_ID.1.0.out"))
    until_state(client, job.id, "done")
    with pytest.raises(ApiError, match="output_gone"):
        client.output(job.id, 0)
    refused = logs(cluster, f"{job.id}.0")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "output_gone" in refused.stderr


def test_a_worker_that_is_killed_in_the_middle_interrupts_no_follower(
    cluster: Up, client: Client
) -> None:
    job = client.submit(shell(f"echo one; {WAIT_FOR_GO}; echo two"))
    until_running(client, job.id)
    [task] = client.tasks(job.id)
    output = client.output(job.id, 0, follow=True)
    assert first_line(output) == b"one\n"
    number = int(task.host[1:]) - 1
    killed = cluster.state["pids"]["workers"][number]
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: cluster.state["pids"]["workers"][number] not in (None, killed), "another")
    (run_folder(cluster, job.id, task.host) / "go").touch()
    assert whole(output) == b"two\n"


def test_xcecli_logs_prints_one_task_or_all(cluster: Up, client: Client) -> None:
    program = "echo a$XCE_TASK_INDEX; printf b$XCE_TASK_INDEX; echo e >&2"
    job = client.submit(shell(program, tasks=3))
    until_state(client, job.id, "done")
    one = logs(cluster, f"{job.id}.1")
    assert (one.returncode, one.stdout, one.stderr) == (0, "a1\nb1", "")
    assert logs(cluster, f"{job.id}.2", "--tail", "2").stdout == "b2"
    everybody = logs(cluster, str(job.id))
    assert everybody.returncode == 0
    assert everybody.stdout == "".join(f"{i}| a{i}\n{i}| b{i}\n" for i in range(3))
    assert logs(cluster, str(job.id), "--stream", "stderr").stdout == "0| e\n1| e\n2| e\n"
    followed = logs(cluster, str(job.id), "--follow")
    assert sorted(followed.stdout.splitlines()) == sorted(everybody.stdout.splitlines())
    assert logs(cluster, f"{job.id}.9").returncode == 3
    assert logs(cluster, "nonsense").returncode == 2
    assert logs(cluster, f"{job.id}.0", XCE_TOKEN="wrong").returncode == 7
    away = logs(cluster, f"{job.id}.0", XCE_API_URL="http://127.0.0.1:9")
    assert away.returncode == 6


def test_xcecli_logs_follows_tasks_that_come_later_and_survives_the_api(
    cluster: Up, client: Client
) -> None:
    program = f"echo in $XCE_TASK_INDEX; {WAIT_FOR_GO}; echo out $XCE_TASK_INDEX"
    job = client.submit(shell(program, min_tasks=1, max_tasks=2))
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "logs", "-f", str(job.id)],
        env={**os.environ, **cli_environment(cluster)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "0| in 0\n"
        grown = client.grow(job.id, 1)
        assert following.stdout.readline() == "1| in 1\n"
        eventually(lambda: client.request(grown.id).state == "running", "a grown job")
        killed = cluster.state["pids"]["controllers"][0]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: cluster.state["pids"]["controllers"][0] not in (None, killed), "another")
        eventually(lambda: client.job(job.id).state == "running", "an API that answers")
        for host in {task.host for task in client.tasks(job.id)}:
            (run_folder(cluster, job.id, host) / "go").touch()
        rest = sorted(following.stdout.read().splitlines())
        assert rest == ["0| out 0", "1| out 1"]
        assert following.wait() == 0


def test_only_the_last_part_of_large_output_is_kept() -> None:
    options = ("--set", "output_max_mib=4", "--set", "output_keep_mib=1")
    with up("--workers", "1", *options) as cluster:
        client = cluster.client()
        mib = "head -c 1048576 /dev/zero | tr '\\0' x"
        job = client.submit(shell(f"for i in 1 2 3 4 5 6 7 8; do {mib}; done; {WAIT_FOR_GO}"))
        until_running(client, job.id)

        def start() -> int:
            output = client.output(job.id, 0)
            output.close()
            return output.start

        assert eventually(start, "a file without its beginning", within_s=30) == 4 * MIB
        (run_folder(cluster, job.id) / "go").touch()
        until_state(client, job.id, "done")
        eventually(lambda: start() == 7 * MIB, "the end alone")
        output = client.output(job.id, 0)
        assert (output.start, output.size) == (7 * MIB, 8 * MIB)
        assert whole(output) == b"x" * MIB
        file = run_folder(cluster, job.id) / f"{job.id}.1.0.out"
        assert file.stat().st_blocks * 512 < 2 * MIB


def test_a_lost_host_is_503_and_a_stop_waits_for_no_follower() -> None:
    quick = ("--set", "heartbeat_s=0.3", "--set", "silent_s=2", "--set", "lease_s=1")
    with up("--workers", "1", *quick) as cluster:
        client = cluster.client()
        job = client.submit(shell(f"echo one; {WAIT_FOR_GO}"))
        until_running(client, job.id)
        following = client.output(job.id, 0, follow=True)
        assert first_line(following) == b"one\n"
        worker = cluster.state["pids"]["workers"][0]
        os.kill(worker, signal.SIGSTOP)
        operator = cluster.client(is_operator=True)
        eventually(lambda: operator.host("h1").state == "lost", "a lost host", within_s=30)
        refused = refusal(cluster, job.id)
        assert refused == 503
        os.kill(worker, signal.SIGCONT)
        eventually(lambda: operator.host("h1").state == "up", "the host's return", within_s=30)
        assert whole(client.output(job.id, 0)) == b"one\n"
        broken: list[str] = []

        def read_on() -> None:
            try:
                whole(following)
            except ApiError as error:
                broken.append(error.code)

        reading = threading.Thread(target=read_on)
        reading.start()
        assert cluster.stop() < 15
        reading.join(10)
        assert broken == ["unavailable"]


def refusal(cluster: Up, job_id: int) -> int:
    """The status of one call, without a client that asks again."""
    token = Path(cluster.told["owner_token_file"]).read_text().strip()
    url = f"{cluster.told['api']}/v1/jobs/{job_id}/tasks/0/output"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=15)
    with refused.value:
        return refused.value.code
