"""Whatever is sent to the API, it answers with a refusal, goes on serving, and breaks no rule."""

import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.wire.jobs import JobSubmit
from tests.system.processes import Up, eventually, up

pytestmark = pytest.mark.timeout(120)
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
CALLS = re.compile(r"([0-9]+) generated, ([0-9]+) passed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Up]:
    with up("--workers", "1", "--cpus", "4") as running:
        yield running


@pytest.fixture
def fuzzed() -> Iterator[Up]:
    """Two hosts with jobs that can be resized, so that many a call finds something.

    Of the test's own: an operator may drain every host and set every setting.
    """
    with up("--workers", "2", "--cpus", "4") as running:
        client = running.client(is_operator=True)
        for _ in range(3):
            job = client.submit(
                JobSubmit(command=["sleep", "600"], tasks=2, min_tasks=1, max_tasks=4)
            )
            eventually(lambda job=job: client.job(job.id).state == "running", "a running job")
            client.grow(job.id, 1)
        yield running


def fuzz(cluster: Up, *, examples: int, seed: int) -> int:
    """How many calls were made of the OpenAPI document; none of them was answered 5xx."""
    token = Path(cluster.told["token_file"]).read_text().strip()
    command = [str(SCHEMATHESIS), "run", f"{cluster.told['api']}/schema/openapi.json"]
    command += ["--header", f"Authorization: Bearer {token}", "--seed", str(seed)]
    command += ["--max-examples", str(examples), "--checks", "not_a_server_error"]
    command += ["--phases", "coverage,fuzzing", "--continue-on-failure", "--no-color"]
    command += ["--request-timeout", "10", "--exclude-path-regex", "/(wait|events|output|metrics)"]
    # It keeps a cache where it runs.
    ran = subprocess.run(command, cwd=cluster.folder, capture_output=True, text=True, check=False)
    told = CALLS.search(ran.stdout)
    assert told, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert (ran.returncode, told[1]) == (0, told[2]), ran.stdout[-6000:]
    return int(told[1])


def still_serves(cluster: Up) -> None:
    client = cluster.client(is_operator=True)
    job = client.submit(JobSubmit(command=["true"]))
    eventually(lambda: client.job(job.id).state in ("done", "exited"), "a job that runs and ends")
    cluster.check()


def still_takes_calls(cluster: Up) -> None:
    """Where every host may be drained a job is still taken, and ends when it is killed."""
    client = cluster.client(is_operator=True)
    job = client.submit(JobSubmit(command=["true"]))
    client.kill(job.id)
    eventually(lambda: client.job(job.id).state in ("done", "exited"), "the end of the job")
    cluster.check()


def test_calls_made_from_the_document_are_never_answered_500(fuzzed: Up) -> None:
    assert fuzz(fuzzed, examples=2, seed=1) > 300
    still_takes_calls(fuzzed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_ten_thousand_calls_made_from_the_document_are_never_answered_500(fuzzed: Up) -> None:
    calls, seed = 0, 100
    while calls < 10_000:
        calls += fuzz(fuzzed, examples=60, seed=seed)
        seed += 1
    print(f"\n{calls} calls, none answered 5xx")
    still_takes_calls(fuzzed)


def connection(cluster: Up) -> socket.socket:
    place = urlsplit(cluster.told["api"])
    assert place.hostname is not None
    assert place.port is not None
    return socket.create_connection((place.hostname, place.port), timeout=5)


HALVES = [
    b"",
    b"GET /v1/jobs HT",
    b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
    b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
]


def test_a_thousand_idle_and_half_sent_connections_keep_nobody_out(cluster: Up) -> None:
    wanted = 1_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 3 * wanted)), hard))
    with ExitStack() as held:
        for i in range(wanted):
            opened = held.enter_context(connection(cluster))
            opened.sendall(HALVES[i % len(HALVES)])
        still_serves(cluster)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /v1/jobs/%00%ff%2e%2e HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET /v1/jobs HTTP/9.9\r\nHost: x\r\n\r\n",
    ],
    ids=["bytes", "path", "long path", "long header", "negative", "huge", "version"],
)
def test_what_is_no_request_of_ours_is_refused_or_hung_up_on(cluster: Up, sent: bytes) -> None:
    with connection(cluster) as opened:
        opened.sendall(sent)
        opened.shutdown(socket.SHUT_WR)
        answer = b""
        while part := opened.recv(65536):
            answer += part
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505"))
    still_serves(cluster)
