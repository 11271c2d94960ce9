"""Rows of answers, without a terminal."""

from tests.tui.builders import ago, answers, host, job, request
from tui.state import (
    HOST_COLUMNS,
    JOB_COLUMNS,
    REQUEST_COLUMNS,
    Row,
    chosen,
    host_sheet,
    job_sheet,
    newly_ended,
    request_sheet,
    sheets,
    title,
    wanted_tasks,
)


def cells(row: Row, columns: object) -> dict[str, str]:
    return {column.name: cell for column, cell in zip(columns, row.cells, strict=True)}


def test_a_host_tells_what_is_used_what_is_held_and_when_it_was_heard() -> None:
    found = answers(
        hosts=[host(1, cpus_used=2, cpus_held=1, mem_mib_used=5, reason="silent", state="lost")],
        jobs=[job(1, hosts=["h1", "h2"]), job(2, hosts=["h1"])],
    )
    (row,) = host_sheet(found).rows
    assert cells(row, HOST_COLUMNS) == {
        **{"name": "h1", "state": "lost", "cpus": "2+1/4", "mem_mib": "5/1000", "gpus": "-"},
        **{"jobs": "2", "seen": "3s", "reason": "silent"},
    }


def test_hosts_that_need_somebody_come_first() -> None:
    states = ("up", "draining", "lost", "joining", "up", "down")
    sheet = host_sheet(answers(hosts=[host(i, state=s) for i, s in enumerate(states)]))
    assert [row.key for row in sheet.rows] == [2, 5, 1, 3, 0, 4]
    assert sheet.tally == "2 up, 1 lost, 1 down, 1 draining, 1 joining"


def test_a_job_tells_its_size_its_bounds_and_what_is_wanted() -> None:
    found = answers(jobs=[job(7, tasks=3, name="n")], requests=[request(1, job_id=7)])
    (row,) = job_sheet(found).rows
    assert cells(row, JOB_COLUMNS) == {
        **{"id": "7", "name": "n", "owner": "alice", "state": "running", "tasks": "3"},
        **{"min..max": "1..4", "wanted": "5", "age": "60s", "reason": "-"},
    }


def test_wanted_counts_what_is_not_yet_in_the_allocation_or_still_in_it() -> None:
    one = job(1, tasks=3)
    for kind, state, wanted in (
        ("grow", "pending", 5),
        ("grow", "placed", 5),
        ("grow", "committed", 3),
        ("shrink", "pending", 1),
        ("shrink", "stopping", 3),
    ):
        assert wanted_tasks(one, [request(1, kind=kind, state=state)]) == wanted, (kind, state)
    assert wanted_tasks(one, []) == 3


def test_why_a_job_is_as_it_is() -> None:
    def reason(one: object, *requests: object) -> str:
        (row,) = job_sheet(answers(jobs=[one], requests=list(requests))).rows
        return row.cells[-1]

    waiting = request(1, reason="capacity")
    assert reason(job(1, state="stopping", reason="killed"), waiting) == "killed"
    assert reason(job(1, held=True)) == "held"
    assert reason(job(1), request(2), waiting) == "capacity"
    (ended,) = job_sheet(answers(ended=[job(2, exit_code=3, ended_at=ago(1))])).rows
    assert cells(ended, JOB_COLUMNS)["reason"] == "exit_code 3"


def test_a_request_says_who_has_to_move() -> None:
    found = answers(jobs=[job(1, name="n")], requests=[request(5, reason="capacity")])
    (row,) = request_sheet(found).rows
    assert cells(row, REQUEST_COLUMNS) == {
        **{"id": "5", "job_id": "1", "kind": "grow", "state": "pending", "tasks_asked": "2"},
        **{"age": "30s", "waits_on": "controller", "reason": "capacity"},
        "why": "accepted, waits",
    }
    assert row.owner == "alice"


def test_newest_jobs_and_oldest_requests_come_first() -> None:
    made = sheets(
        answers(
            jobs=[job(1), job(3)],
            ended=[job(2, state="done", ended_at=ago(1))],
            requests=[request(4), request(9)],
        )
    )
    assert [row.key for row in made.jobs.rows] == [3, 2, 1]
    assert [row.key for row in made.requests.rows] == [4, 9]


def test_a_filter_wants_all_words_in_any_cell_whatever_their_case() -> None:
    found = answers(
        jobs=[
            job(1, name="Train-A", hosts=["node7"]),
            job(2, name="train-b", owner="bob"),
            job(3, name="test", owner="bob", state="pending"),
        ]
    )
    sheet = job_sheet(found)

    def keys(words: str, owner: str | None = None) -> list[int]:
        return [row.key for row in chosen(sheet, words=words, owner=owner)]

    assert keys("") == [3, 2, 1]
    assert keys("TRAIN") == [2, 1]
    assert keys("train node7") == [1]
    assert keys("nothing") == []
    assert keys("", "bob") == [3, 2]
    assert keys("pend", "bob") == [3]


def test_a_title_says_how_many_of_how_many_are_shown() -> None:
    sheet = job_sheet(answers(jobs=[job(1), job(2)]))
    assert title("jobs", sheet, shown=2, words="", owner=None) == "jobs  2: 2 running"
    told = title("jobs", sheet, shown=1, words="a\x1b[31m", owner="bob")
    assert told == "jobs  2: 2 running  | showing 1 with “a\\x1b[31m” of bob"
    empty = job_sheet(answers())
    assert title("jobs", empty, shown=0, words="", owner=None) == "jobs  none"


def test_jobs_that_are_not_listed_any_more_have_ended() -> None:
    before = answers(jobs=[job(1), job(2), job(3)])
    assert newly_ended(before, [job(2), job(9)]) == [1, 3]
    assert newly_ended(None, [job(2)]) == []


def test_every_column_has_room_for_its_heading_and_its_widest_cell() -> None:
    sheet = job_sheet(answers(jobs=[job(1, name="日本語の名前です"), job(123456)]))
    assert sheet.widths[:2] == (6, 16)
    assert len(sheet.widths) == len(JOB_COLUMNS)
