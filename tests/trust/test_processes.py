"""What a task gets of the daemons that started it, and what others can read of these: nothing."""

import ctypes
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.runtime.process import forbid_dumps
from app.wire.jobs import JobSubmit
from tests.system.processes import Up, eventually, up
from tests.trust.person import GID, as_root, become

pytestmark = pytest.mark.timeout(90)

SECRET = "planted-in-the-environment-of-a-daemon"
PTRACE_ATTACH = 16
PTRACE_DETACH = 17
#: A process that may be read belongs, in /proc, to its user; one that hides itself to root.
HIDDEN = (0, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Up]:
    """Started with a secret in its environment, an open file, and a group that is not root's."""
    with tempfile.TemporaryFile() as file:
        os.set_inheritable(file.fileno(), True)
        started = {"pass_fds": (file.fileno(),)} | ({"group": GID} if os.getuid() == 0 else {})
        with up("--workers", "1", started=started, PLANTED=SECRET, XCE_PLANTED=SECRET) as made:
            yield made


@pytest.fixture(scope="module")
def task(cluster: Up) -> Path:
    """The run folder of a task that has written down what it found, and lives."""
    client = cluster.client()
    script = (
        "tr '\\0' '\\n' < /proc/self/environ > environment; echo $$ > pid;"
        " echo done > done; exec sleep 600"
    )
    job = client.submit(JobSubmit(command=["/bin/sh", "-c", script], env={"OWN": "x"}))
    folder = cluster.folder / "hosts/h1/jobs" / str(job.id)
    eventually((folder / "done").exists, "a task that looked around")
    return folder


def daemons(cluster: Up) -> list[int]:
    pids = cluster.state["pids"]
    return [cluster.process.pid, *pids["controllers"], *pids["workers"], *pids["keepers"]]


def seen_owner(pid: int) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/environ")
    return (found.st_uid, found.st_gid)


def is_traceable(pid: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        return False
    os.waitpid(pid, 0)
    libc.ptrace(PTRACE_DETACH, pid, None, None)
    return True


def is_readable(pid: int, name: str) -> bool:
    try:
        Path(f"/proc/{pid}/{name}").read_bytes()
    except PermissionError:
        return False
    return True


def test_a_task_starts_from_an_empty_environment(task: Path) -> None:
    names = {line.partition("=")[0] for line in (task / "environment").read_text().splitlines()}
    assert SECRET not in (task / "environment").read_text()
    assert names <= {
        *("PATH", "HOME", "USER", "LANG", "OWN", "XCE_JOB_ID", "XCE_ATTEMPT", "XCE_TASK_INDEX"),
        *("XCE_HOST", "XCE_CPUS", "XCE_MEM_MIB", "XCE_GPUS", "XCE_API_URL", "XCE_RUN_DIR"),
    }
    assert {"PATH", "OWN", "XCE_JOB_ID", "XCE_RUN_DIR"} <= names


def test_a_task_inherits_no_descriptor(cluster: Up) -> None:
    client = cluster.client()
    job = client.submit(JobSubmit(command=["ls", "-l", "/proc/self/fd"]))
    eventually(lambda: client.job(job.id).state == "done", "a list of descriptors")
    output = cluster.folder / "hosts/h1/jobs" / str(job.id) / f"{job.id}.1.0.out"
    links = [line.split()[-3::2] for line in output.read_text().splitlines() if "->" in line]
    found = {int(fd): target for fd, target in links}
    # The list itself is read through the fourth.
    assert set(found) == {0, 1, 2, 3}
    assert found[3].endswith("/fd")
    assert found[0] == "/dev/null"
    assert found[1] == str(output)


def test_daemons_hide_their_memory_even_from_their_own_user(cluster: Up, task: Path) -> None:
    for pid in daemons(cluster):
        assert seen_owner(pid) == HIDDEN, Path(f"/proc/{pid}/cmdline").read_text()
    # The task is as open as any program of its user; it got its group from its worker.
    pid = int((task / "pid").read_text())
    assert seen_owner(pid) == (os.getuid(), GID if os.getuid() == 0 else os.getgid())
    assert is_readable(pid, "environ")


@as_root
@pytest.mark.parametrize("name", ["environ", "maps", "mem", "auxv"])
def test_another_user_reads_nothing_of_a_daemon(cluster: Up, name: str) -> None:
    for pid in daemons(cluster):
        assert not become(lambda pid=pid: is_readable(pid, name))
        # Not even one who has the same group.
        assert not become(lambda pid=pid: is_readable(pid, name), gid=GID)


@as_root
def test_another_user_traces_no_daemon(cluster: Up) -> None:
    for pid in daemons(cluster):
        assert not become(lambda pid=pid: is_traceable(pid))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may trace whatever it likes")
def test_the_same_user_traces_no_daemon(cluster: Up) -> None:
    for pid in daemons(cluster):
        assert not is_traceable(pid)
        assert not is_readable(pid, "environ")


@as_root
def test_what_is_forbidden_is_what_would_be_allowed() -> None:
    """The same user, once with and once without: the kernel here makes the difference."""
    answers = [become(lambda hides=hides: _reads_its_child(hides)) for hides in (False, True)]
    assert answers == [True, False]


def _reads_its_child(hides: bool) -> bool:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        # To change the user has hidden it already; as after an exec it is open again.
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        if hides:
            forbid_dumps()
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
    answer = is_readable(pid, "environ")
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return answer
