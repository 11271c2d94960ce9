"""What the worker does next, case by case."""

from typing import Any

import pytest

from app.worker.reconcile import (
    NEVER_FORKED,
    NO_RECORD,
    STRAY_GRACE_S,
    Action,
    Desired,
    Forget,
    Key,
    Launch,
    Observed,
    Report,
    Start,
    Stop,
    is_clear,
    open_rows,
    reconcile,
)

KEY = Key(5, 1, 0)
LAUNCH = Launch(command=("true",), env={}, host="h1", cpus=1, mem_mib=0, gpus=0)


def wanted(state: Any, *, key: Key = KEY, grace_s: float = 10.0) -> Desired:
    launch = LAUNCH if state == "starting" else None
    return Desired(*key, state, grace_s=grace_s, launch=launch)


def process(phase: Any, *, key: Key = KEY, **more: Any) -> Observed:
    more.setdefault("execed", phase != "forked")
    return Observed(key, phase, **more)


def actions(
    *tasks: Desired, processes: tuple[Observed, ...] = (), fetched: int = 1, now_s: float = 100.0
) -> list[Action]:
    return reconcile(
        {task.key: task for task in tasks},
        {seen.key: seen for seen in processes},
        fetched=fetched,
        now_s=now_s,
    )


def test_a_claimed_task_without_a_record_is_started() -> None:
    task = wanted("starting")
    assert actions(task) == [Start(task, LAUNCH)]


@pytest.mark.parametrize("phase", ["forked", "live", "ended", "lost"])
def test_a_task_with_a_record_is_never_started_again(phase: str) -> None:
    found = actions(wanted("starting"), processes=(process(phase),))
    assert not any(isinstance(action, Start) for action in found)


def test_a_forked_child_is_waited_for() -> None:
    assert actions(wanted("starting"), processes=(process("forked"),)) == []


def test_a_task_whose_exec_succeeded_is_reported_up() -> None:
    assert actions(wanted("starting"), processes=(process("live"),)) == [Report(*KEY, "up")]


def test_a_task_known_to_be_up_needs_nothing() -> None:
    assert actions(wanted("running"), processes=(process("live"),)) == []


def test_up_is_reported_before_the_end_of_a_task_that_ended_at_once() -> None:
    found = actions(wanted("starting"), processes=(process("ended", exit_code=0),))
    assert found == [Report(*KEY, "up"), Report(*KEY, "gone", execed=True, exit_code=0)]


def test_a_failed_exec_is_reported_with_its_reason_and_never_as_up() -> None:
    reason = "exec: No such file or directory: foo"
    found = actions(wanted("starting"), processes=(process("ended", execed=False, reason=reason),))
    assert found == [Report(*KEY, "gone", execed=False, reason=reason)]


def test_an_exit_is_reported_with_all_that_is_known() -> None:
    seen = process("ended", signal=9, cpu_used_us=12, mem_peak_mib=3)
    assert actions(wanted("running"), processes=(seen,)) == [
        Report(*KEY, "gone", signal=9, cpu_used_us=12, mem_peak_mib=3)
    ]


def test_a_record_without_process_and_exit_is_reported_lost() -> None:
    assert actions(wanted("running"), processes=(process("lost"),)) == [
        Report(*KEY, "gone", lost=True)
    ]


def test_a_running_task_without_a_record_is_reported_lost() -> None:
    assert actions(wanted("running")) == [Report(*KEY, "gone", lost=True, reason=NO_RECORD)]


def test_a_stopping_task_without_a_record_was_never_forked() -> None:
    assert actions(wanted("stopping")) == [Report(*KEY, "gone", execed=False, reason=NEVER_FORKED)]


def test_a_stopping_task_is_told_to_stop_once() -> None:
    task = wanted("stopping", grace_s=7)
    assert actions(task, processes=(process("live"),)) == [Stop(KEY, 7)]
    assert actions(task, processes=(process("live", stop_by_s=107.0),), now_s=101.0) == []


def test_only_a_shorter_grace_is_a_new_order() -> None:
    told = (process("live", stop_by_s=107.0),)
    assert actions(wanted("stopping", grace_s=60), processes=told, now_s=101.0) == []
    assert actions(wanted("stopping", grace_s=1), processes=told, now_s=101.0) == [Stop(KEY, 1)]


def test_a_forked_child_can_be_stopped_too() -> None:
    assert actions(wanted("stopping"), processes=(process("forked"),)) == [Stop(KEY, 10)]


def test_an_acknowledged_end_is_forgotten() -> None:
    assert actions(wanted("ended"), processes=(process("ended"),)) == [Forget(KEY)]
    assert actions(wanted("ended")) == []


def test_a_stray_is_stopped_with_its_own_grace_then_reported() -> None:
    assert actions(processes=(process("live", grace_s=3.0),)) == [Stop(KEY, 3.0)]
    assert actions(processes=(process("live"),)) == [Stop(KEY, STRAY_GRACE_S)]
    assert actions(processes=(process("ended", signal=15),)) == [Report(*KEY, "gone", signal=15)]


def test_a_process_newer_than_the_answer_is_no_stray() -> None:
    assert actions(processes=(process("live", seen=4),), fetched=4) == []
    assert actions(processes=(process("live", seen=4),), fetched=5) == [Stop(KEY, STRAY_GRACE_S)]


def test_attempts_of_one_index_are_different_tasks() -> None:
    old, new = Key(5, 1, 0), Key(5, 2, 0)
    task = wanted("starting", key=new)
    found = actions(task, processes=(process("live", key=old),))
    assert found == [Stop(old, STRAY_GRACE_S), Start(task, LAUNCH)]


def test_the_host_is_clear_when_all_that_lives_has_an_open_row() -> None:
    alive = {KEY: process("live")}
    assert is_clear(open_rows({KEY: wanted("stopping")}), alive)
    assert not is_clear(open_rows({KEY: wanted("ended")}), alive)
    assert not is_clear(frozenset(), alive)
    assert is_clear(frozenset(), {KEY: process("ended")})


def test_29_nothing_new_starts_before_the_host_is_cleared() -> None:
    new = wanted("starting")
    row = {KEY: new}
    assert reconcile(row, {}, fetched=1, now_s=0, may_start=False) == []
    assert reconcile(row, {}, fetched=1, now_s=0, may_start=True) == [Start(new, LAUNCH)]


def test_23_what_the_fence_ended_is_told_as_lost() -> None:
    ended = process("ended", signal=15, by_fence=True)
    [report] = actions(wanted("running"), processes=(ended,))
    assert isinstance(report, Report)
    assert (report.lost, report.by_fence, report.signal) == (True, True, 15)
