"""Whatever happens in whichever order, a host ends up as the database wants it."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from app.worker.reconcile import (
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
from app.worker.tasks import Tasks

LAUNCH = Launch(command=("true",), env={}, host="h1", cpus=1, mem_mib=0, gpus=0)
ROUNDS_MAX = 12

keys = st.builds(Key, st.integers(1, 2), st.integers(1, 2), st.integers(0, 1))
desired_tasks = st.dictionaries(
    keys,
    st.builds(
        lambda state, grace_s: Desired(0, 0, 0, state, grace_s, "stop", LAUNCH),
        st.sampled_from(["starting", "running", "stopping", "ended"]),
        st.sampled_from([0.0, 5.0, 60.0]),
    ),
).map(
    lambda tasks: {
        key: replace(task, job_id=key.job_id, attempt=key.attempt, index=key.index)
        for key, task in tasks.items()
    }
)
observed_processes = st.dictionaries(
    keys,
    st.builds(
        lambda phase, stop_by_s, seen: Observed(
            Key(0, 0, 0), phase, execed=phase == "live", stop_by_s=stop_by_s, seen=seen
        ),
        st.sampled_from(["forked", "live", "ended", "lost"]),
        st.sampled_from([None, 90.0, 130.0]),
        st.integers(0, 2),
    ),
).map(lambda found: {key: replace(process, key=key) for key, process in found.items()})


@given(desired_tasks, observed_processes, st.integers(0, 2))
def test_reconcile_is_a_function_of_its_inputs_and_starts_only_what_has_no_record(
    desired: dict[Key, Desired], observed: dict[Key, Observed], fetched: int
) -> None:
    first = reconcile(desired, observed, fetched=fetched, now_s=100.0)
    assert reconcile(desired, observed, fetched=fetched, now_s=100.0) == first
    started = [action.task.key for action in first if isinstance(action, Start)]
    assert len(started) == len(set(started))
    assert not set(started) & observed.keys()
    stopped = {action.key for action in first if isinstance(action, Stop)}
    assert all(observed[key].is_alive for key in stopped)
    forgotten = {action.key for action in first if isinstance(action, Forget)}
    assert not any(observed[key].is_alive for key in forgotten)


@given(desired_tasks, observed_processes)
def test_a_clear_host_has_nothing_to_end_but_what_it_was_asked_to(
    desired: dict[Key, Desired], observed: dict[Key, Observed]
) -> None:
    if is_clear(open_rows(desired), observed):
        orders = reconcile(desired, observed, fetched=9, now_s=100.0)
        stopped = {order.key for order in orders if isinstance(order, Stop)}
        assert all(desired[key].state == "stopping" for key in stopped)


@dataclass
class Row:
    """A task as the database has it."""

    state: str = "assigned"
    reports: list[Report] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.state != "ended"


class Host(RuleBasedStateMachine):
    """A database, a keeper and a worker that loses answers, crashes and forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Key, Row] = {}
        self.records: dict[Key, Observed] = {}
        self.started: dict[Key, int] = {}
        self.now_s = 0.0
        self._restart()

    def _restart(self) -> None:
        self.tasks = Tasks()
        self.fetched = 0
        self.records = {key: replace(r, seen=0) for key, r in self.records.items()}

    # The database -------------------------------------------------------------------------

    @rule()
    def assign(self) -> None:
        self.rows[Key(1, 1, len(self.rows))] = Row()

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), event=st.sampled_from(["stop", "lost"]))
    def take_back(self, data: Any, event: str) -> None:
        row = self.rows[data.draw(st.sampled_from(sorted(self.rows)))]
        if row.state == "assigned" or (event == "lost" and row.is_open):
            row.state = "ended"
        elif row.is_open:
            row.state = "stopping"

    def _claimed(self) -> list[Desired]:
        for row in self.rows.values():
            if row.state == "assigned":
                row.state = "starting"
        return [
            Desired(*key, row.state, 5.0, "stop", LAUNCH if row.state == "starting" else None)  # type: ignore[arg-type]
            for key, row in self.rows.items()
            if row.is_open
        ]

    def _record_report(self, report: Report) -> None:
        row = self.rows[report.key]
        if not row.is_open:
            return
        row.reports.append(report)
        if report.event == "gone":
            self._check_end(report)
            row.state = "ended"
        elif row.state == "starting":
            row.state = "running"

    def _check_end(self, report: Report) -> None:
        """What is said of an end is true, and said only of what has ended."""
        record = self.records.get(report.key)
        if record is None:
            assert report.key not in self.started or report.lost or not report.execed
            return
        assert not record.is_alive
        assert report.exit_code == record.exit_code
        assert report.lost == (record.phase == "lost")

    # The worker ---------------------------------------------------------------------------

    @rule(is_answer_lost=st.booleans())
    def fetch(self, is_answer_lost: bool) -> None:
        self.fetched += 1
        answer = self._claimed()
        if not is_answer_lost:
            self.tasks.learn(answer)

    @rule(
        steps=st.integers(0, 6),
        link=st.sampled_from(["well", "well", "call lost", "answer lost"]),
        is_start_torn=st.booleans(),
    )
    def act(self, steps: int, link: str, is_start_torn: bool) -> None:
        for action in self._actions()[:steps]:
            self._carry_out(action, link, is_start_torn)

    @rule()
    def crash(self) -> None:
        self._restart()

    def _actions(self) -> list[Action]:
        return reconcile(self.tasks.desired, self.records, fetched=self.fetched, now_s=self.now_s)

    def _carry_out(self, action: Action, link: str = "well", is_start_torn: bool = False) -> None:
        self.now_s += 0.1
        match action:
            case Start(task):
                assert task.key not in self.records
                assert task.key not in self.started, "two processes for one run of a task"
                if not is_start_torn:
                    self.started[task.key] = self.fetched
                    self.records[task.key] = Observed(task.key, "forked", seen=self.fetched)
            case Stop(key, grace_s):
                record = self.records[key]
                assert record.is_alive
                self.records[key] = replace(record, stop_by_s=self.now_s + grace_s)
            case Report():
                if link != "call lost":
                    self._record_report(action)
                if link == "well":
                    self.tasks.acknowledge([action])
            case Forget(key):
                assert not self.records[key].is_alive
                assert not self.rows[key].is_open, "forgotten before it was acknowledged"
                del self.records[key]

    # The processes ------------------------------------------------------------------------

    @precondition(lambda self: self.records)
    @rule(data=st.data(), code=st.integers(0, 2), how=st.sampled_from(["on", "on", "lost"]))
    def go_on(self, data: Any, code: int, how: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.records)))
        self.records[key] = self._later(self.records[key], code, how)

    def _later(self, record: Observed, code: int, how: str) -> Observed:
        if not record.is_alive:
            return record
        if how == "lost":
            return replace(record, phase="lost")
        if record.phase == "forked":
            if code == 2:
                return replace(record, phase="ended", reason="exec: no such file")
            return replace(record, phase="live", execed=True)
        return replace(record, phase="ended", exit_code=code)

    # What must hold -----------------------------------------------------------------------

    @invariant()
    def planning_twice_plans_the_same(self) -> None:
        assert self._actions() == self._actions()

    def teardown(self) -> None:
        """With the link well again, everything settles within a few rounds."""
        for _ in range(ROUNDS_MAX):
            self.fetch(is_answer_lost=False)
            for _ in range(4):
                for action in self._actions():
                    self._carry_out(action)
                self.records = {
                    key: self._later(record, 0, "on")
                    if record.phase == "forked" or record.stop_by_s is not None
                    else record
                    for key, record in self.records.items()
                }
        assert self._actions() == []
        assert {row.state for row in self.rows.values()} <= {"running", "ended"}
        alive = {key for key, record in self.records.items() if record.is_alive}
        assert alive == {key for key, row in self.rows.items() if row.state == "running"}
        assert alive == self.records.keys(), "an acknowledged end is forgotten"
        assert is_clear(open_rows(self.tasks.desired), self.records)
        for row in self.rows.values():
            self._check_reports(row)

    def _check_reports(self, row: Row) -> None:
        events = [report.event for report in row.reports]
        assert events.count("gone") <= 1
        assert "gone" not in events[:-1]


TestHost = Host.TestCase
TestHost.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
