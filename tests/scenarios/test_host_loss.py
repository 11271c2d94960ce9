"""Cases H14, H17, H18, H20 to H22 and H26 on real processes, with hosts that fall silent."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.keeper.host import parent_of
from tests.scenarios.conftest import Live
from tests.system.processes import Up, eventually, is_alive, up

pytestmark = pytest.mark.timeout(120)
SILENT_S, FENCE_S = 3, 5
#: Longest from the cut to the leader's decision: fence, 5 s more, and what a busy machine adds.
LOSS_S = 45.0
SWEEP = "execute on function xce.sweep_silence (bigint, timestamptz, timestamptz)"


@pytest.fixture(scope="module")
def brief_cluster() -> Iterator[Up]:
    """Three hosts of two cpus, which are lost in seconds."""
    settings = {"heartbeat_s": 1, "worker_poll_s": 1, "silent_s": SILENT_S, "fence_s": FENCE_S}
    told = [f"{name}={value}" for name, value in settings.items()]
    options = [word for each in told for word in ("--set", each)]
    with up("--workers", "3", "--cpus", "2", *options) as cluster:
        yield cluster


@pytest.fixture
def brief(brief_cluster: Up) -> Iterator[Live]:
    told = Live(brief_cluster)
    eventually(lambda: {host.state for host in told.operator.hosts()} == {"up"}, "all hosts up")
    yield told
    for job in told.client.jobs(state="pending,running,stopping"):
        told.client.kill(job.id)
        told.ended(job.id, within_s=20)
    for host in told.operator.hosts():
        if host.state == "down":
            told.operator.resume(host.name)
    brief_cluster.check()


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """The processes do nothing until the end, and do not know of it."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)


def alone(lock: Path) -> tuple[str, ...]:
    """A program that fails at once where another copy of it lives."""
    return ("flock", "--nonblock", "--no-fork", str(lock), "sleep", "600")


def await_state(live: Live, host: str, state: str, *, within_s: float = 20) -> None:
    eventually(
        lambda: live.operator.host(host).state == state, f"{host} {state}", within_s=within_s
    )


def await_attempt(live: Live, job: int, attempt: int, state: str = "running") -> None:
    def is_there() -> bool:
        now = live.client.job(job)
        assert now.state not in ("done", "exited"), now
        return now.attempt == attempt and (
            now.state == state and (state != "running" or live.states(job) == ["running"])
        )

    eventually(is_there, f"attempt {attempt} {state}", within_s=LOSS_S)


@contextmanager
def cut_off(live: Live, host: str) -> Iterator[None]:
    """The host's worker lives and reaches the database no more."""
    with psycopg.connect(live.cluster.told["database_url"], autocommit=True) as conn:
        row = conn.execute("select login from xce.host where name = %s", (host,)).fetchone()
        assert row is not None
        conn.execute(f'alter role "{row[0]}" nologin'.encode())
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", row
        )
        try:
            yield
        finally:
            conn.execute(f'alter role "{row[0]}" login'.encode())


def test_h17_a_host_that_comes_back_runs_one_copy(brief: Live, tmp_path: Path) -> None:
    job = brief.running(*alone(tmp_path / "lock"), hosts=["h1"], grace_s=0)
    [first] = brief.processes_of(job)
    with cut_off(brief, "h1"):
        await_state(brief, "h1", "lost")
        # Whoever leads next goes on from what the database knows.
        os.kill(brief.cluster.state["pids"]["controllers"][0], signal.SIGKILL)
        await_attempt(brief, job, 2, "pending")
        assert not is_alive(first)
    await_attempt(brief, job, 2)
    assert len(brief.processes_of(job)) == 1
    hows = {(task.attempt, task.how) for task in brief.client.tasks(job, is_all=True)}
    assert hows == {(1, "lost"), (2, None)}


def test_h17_back_before_its_fence_is_over_it_goes_on_with_the_first(
    brief: Live, tmp_path: Path
) -> None:
    job = brief.running(*alone(tmp_path / "lock"), hosts=["h1"], fence="keep")
    [first] = brief.processes_of(job)
    with stopped(brief.worker_of("h1")):
        await_state(brief, "h1", "lost")
        says = "host_lost: waits for h1 to return, or an operator (fence: keep)"
        assert brief.client.job(job).reason == says
        [task] = brief.client.tasks(job)
        assert (task.state, task.reason) == ("running", says)
    await_state(brief, "h1", "up")
    assert brief.processes_of(job) == [first]
    assert (brief.client.job(job).attempt, brief.client.job(job).reason) == (1, None)


def test_h18_a_worker_that_returns_revives_nothing_that_was_lost(
    brief: Live, tmp_path: Path
) -> None:
    job = brief.running(*alone(tmp_path / "lock"), grace_s=0)
    host = brief.hosts(job)[0]
    [main] = brief.processes_of(job)
    doomed = (brief.worker_of(host), brief.keeper_of(host), parent_of(main), main)
    with stopped(brief.cluster.process.pid):
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)
        await_attempt(brief, job, 2)
        assert brief.hosts(job)[0] != host
        [second] = brief.processes_of(job)
    await_state(brief, host, "up")
    assert brief.processes_of(job) == [second]
    history = brief.client.history(job)
    ends = [item.event for item in history if item.kind == "task" and item.target == "ended"]
    assert ends == ["lost"]


def test_h18_the_fence_holds_where_worker_and_keeper_are_dead(brief: Live, tmp_path: Path) -> None:
    job = brief.running(*alone(tmp_path / "lock"), grace_s=0)
    host = brief.hosts(job)[0]
    [first] = brief.processes_of(job)
    with stopped(brief.cluster.process.pid):
        for pid in (brief.worker_of(host), brief.keeper_of(host)):
            os.kill(pid, signal.SIGKILL)
        assert is_alive(first)
        # A copy that found the first one alive would have ended the job.
        await_attempt(brief, job, 2)
    await_state(brief, host, "up")
    assert len(brief.processes_of(job)) == 1


def test_h20_hosts_that_are_cut_off_together_keep_what_runs(brief: Live) -> None:
    job = brief.running("sleep", "600", tasks=3, span={"per_host": 1}, fence="keep")
    before = sorted(brief.processes_of(job))
    with stopped(*(brief.worker_of(host) for host in ("h1", "h2", "h3"))):
        eventually(
            lambda: [host.reason for host in brief.operator.hosts()] == ["silent"] * 3, "silence"
        )
        time.sleep(3)
        assert [host.state for host in brief.operator.hosts()] == ["up"] * 3
    eventually(
        lambda: [host.reason for host in brief.operator.hosts()] == [None] * 3, "news of all"
    )
    assert sorted(brief.processes_of(job)) == before
    assert brief.client.job(job).attempt == 1


def test_h20_and_so_do_those_that_come_back_one_by_one(brief: Live) -> None:
    job = brief.running("sleep", "600", tasks=3, span={"per_host": 1}, fence="keep")
    before = sorted(brief.processes_of(job))
    with stopped(brief.worker_of("h1")):
        with stopped(brief.worker_of("h2")):
            await_state(brief, "h1", "lost")
            await_state(brief, "h2", "lost")
        await_state(brief, "h2", "up")
    await_state(brief, "h1", "up")
    assert sorted(brief.processes_of(job)) == before
    assert brief.client.job(job).attempt == 1


@pytest.mark.parametrize("who", ["worker", "worker and keeper"])
def test_h21_the_host_stops_its_task_before_the_leader_replaces_it(
    brief: Live, tmp_path: Path, who: str
) -> None:
    job = brief.running(*alone(tmp_path / "lock"), grace_s=0)
    host = brief.hosts(job)[0]
    [first] = brief.processes_of(job)
    pids = [brief.worker_of(host), *([brief.keeper_of(host)] if "keeper" in who else [])]
    with stopped(*pids):
        eventually(lambda: not is_alive(first), "the fence")
        seen_at = brief.operator.host(host).last_seen_at
        assert brief.client.job(job).attempt == 1
        await_attempt(brief, job, 2)
        started_at = brief.client.job(job).started_at
        assert seen_at is not None
        assert started_at is not None
        assert (started_at - seen_at).total_seconds() >= FENCE_S + 5
    await_state(brief, host, "up")


def test_h22_a_frozen_leader_makes_no_host_look_dead(brief: Live) -> None:
    job = brief.running("sleep", "600", tasks=3, span={"per_host": 1})
    before = sorted(brief.processes_of(job))
    with stopped(*brief.cluster.state["pids"]["controllers"]):
        time.sleep(SILENT_S + 2)
    eventually(lambda: brief.client.job(job).state == "running", "an answer")
    time.sleep(2)
    events = [item for item in brief.client.history(job) if item.kind == "task"]
    assert {item.event for item in events} == {"assign", "start", "up"}
    assert sorted(brief.processes_of(job)) == before
    assert {host.state for host in brief.operator.hosts()} == {"up"}


def test_h26_a_sweep_that_failed_is_tried_again(brief: Live) -> None:
    with psycopg.connect(brief.cluster.told["database_url"], autocommit=True) as conn:
        conn.execute(f"revoke {SWEEP} from xce_controller".encode())
        with stopped(brief.worker_of("h3")):
            eventually(lambda: brief.operator.host("h3").reason == "silent", "silence")
            time.sleep(2)
            assert brief.operator.host("h3").state == "up"
            conn.execute(f"grant {SWEEP} to xce_controller".encode())
            await_state(brief, "h3", "lost", within_s=5)
    await_state(brief, "h3", "up")


def test_h14_a_loss_wakes_whoever_waits_for_the_room(brief: Live) -> None:
    job = brief.running(
        "sleep", "600", tasks=4, span={"per_host": 2}, hosts=["h1", "h2"], on_host_loss="exit"
    )
    waiting = brief.submit("sleep", "600", hosts=["h1"])
    with stopped(brief.worker_of("h2")):
        ended = brief.ended(job, within_s=LOSS_S)
        assert (ended.state, ended.reason) == ("exited", "host_lost: h2")
        eventually(lambda: brief.states(waiting) == ["running"], "the waiting job", within_s=3)
    await_state(brief, "h2", "up")


def test_29_a_stale_copy_is_stopped_on_return_and_nothing_else(brief: Live) -> None:
    """An operator vouched for a host that was only cut off."""
    job = brief.running("sleep", "600", fence="keep", min_tasks=1, max_tasks=2)
    other = brief.running("sleep", "600", hosts=[brief.hosts(job)[0]])
    host = brief.hosts(job)[0]
    [stale] = brief.processes_of(job)
    with stopped(brief.worker_of(host)):
        await_state(brief, host, "lost")
        brief.operator.retire(host, confirm_dead=True)
        brief.client.kill(other)
        await_attempt(brief, job, 2)
        assert brief.hosts(job)[0] != host
        [second] = [pid for pid in brief.processes_of(job) if pid != stale]
        assert is_alive(stale)
    eventually(lambda: not is_alive(stale), "the stale copy to be stopped", within_s=20)
    assert brief.processes_of(job) == [second]
    assert brief.client.job(job).attempt == 2
