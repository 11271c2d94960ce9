"""What a screen makes of texts, of whomever they are."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from app.wire.encoding import decode
from app.wire.jobs import Job
from tests.tui.builders import NOW, ago, host, job, request
from tui.details import listed, packed, pairs
from tui.headline import Freshness, headline, trouble
from tui.spelling import age, literal, spelled
from tui.widths import fitted, folded, heights, shared, width_of


def test_control_characters_are_spelled_out() -> None:
    for text, shown in (
        ("plain [red]x[/]", "plain [red]x[/]"),
        ("a\x1b[31m\x07", "a\\x1b[31m\\x07"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("👩\u200d🚀", "👩\\u200d🚀"),
        ("日本", "日本"),
    ):
        assert literal(text) == shown


@given(st.text())
def test_nothing_that_is_shown_moves_a_cursor(text: str) -> None:
    assert literal(text).isprintable()
    assert spelled({text: [text]}).isprintable()


@given(st.text(), st.integers(1, 40), st.booleans())
def test_a_fitted_text_has_exactly_its_width(text: str, width: int, is_right: bool) -> None:
    assert cell_len(fitted(literal(text), width, is_right=is_right)) == width


@given(st.text(), st.integers(2, 40))
def test_a_folded_text_loses_nothing_but_spaces(text: str, width: int) -> None:
    lines = folded(literal(text), width)
    assert all(width_of(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == literal(text).replace(" ", "")


def test_a_text_is_folded_at_spaces_where_it_has_some() -> None:
    assert folded("one two three", 8) == ["one two", "three"]
    assert folded("unbreakable", 4) == ["unbr", "eaka", "ble"]


def test_only_what_may_shrink_does_and_the_widest_first() -> None:
    assert shared([5, 20, 10], [None, 8, 4], 40) == [5, 20, 10]
    assert shared([5, 20, 10], [None, 8, 4], 25) == [5, 10, 10]
    assert shared([5, 20, 10], [None, 8, 4], 10) == [5, 8, 4]


def test_a_table_gets_what_it_needs_and_the_current_one_more_where_all_want_it() -> None:
    assert heights([50, 50, 50], current=1, total=16) == [4, 8, 4]
    assert heights([50, 50, 50], current=1, total=18) == [4, 10, 4]
    assert heights([6, 50, 4], current=2, total=16) == [6, 6, 4]
    assert heights([4, 4, 4], current=0, total=16) == [4, 4, 4]
    assert heights([4, 4, 4], current=0, total=0) == [0, 0, 0]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "0s"), (99, "99s"), (100, "1m"), (5999, "99m"), (6000, "1h"), (200_000, "2d")],
)
def test_an_age_has_one_unit(seconds: int, told: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == told


def test_details_tell_every_member_and_who_has_to_move() -> None:
    one = job(1, reason="x")
    told = dict(pairs(one, [request(5, reason="capacity")]))
    assert told.keys() >= set(Job.__struct_fields__[:37])
    assert told["waits_on"] == "grow 5 waits on controller: accepted, waits (capacity)"
    assert list(told)[:3] == ["state", "reason", "waits_on"]
    own = dict(pairs(request(5)))
    assert (own["waits_on"], own["why"], own["may"]) == (
        *("controller", "accepted, waits"),
        "place, cancel",
    )
    assert dict(pairs(host(1, labels={"rack": "r1"})))["labels"] == "rack=r1"


def test_values_of_an_environment_are_not_shown() -> None:
    text = b'{"SECRET": "hunter2", "A": "hunter3"}'
    told = pairs(job(1, env=decode(text, dict), command=["sh", "-c", "sleep 1"]))
    assert "hunter" not in str(told)
    assert dict(told)["command"] == "sh -c 'sleep 1'"
    assert dict(told)["env"] == "A, SECRET (values are not shown)"


def test_long_values_are_cut_and_say_so() -> None:
    told = spelled(["x" * 3_000])
    assert told.endswith("… (1000 characters more)")


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=9), st.text("xy z")), max_size=9))
def test_details_fit_their_pane(told: list[tuple[str, str]]) -> None:
    for line in [*listed(told, 30), *packed(told, 30)]:
        assert width_of(line) <= 30


def test_the_headline_tells_how_old_all_of_it_is() -> None:
    def line(fresh: Freshness) -> str:
        return headline("http://h", "bob", "owner", fresh, now=100.0)

    assert line(Freshness()) == "xce  http://h  bob (owner)  asking …"
    assert line(Freshness(told_at=97.0)) == "xce  http://h  bob (owner)  answered 3 s ago"


def test_trouble_is_told_when_an_answer_is_late_or_a_try_failed() -> None:
    fresh = Freshness(told_at=90.0, next_s=2.0)
    assert trouble(fresh, now=96.0) is None
    assert "STALE for 10 s" in (trouble(fresh, now=100.0) or "")
    failed = Freshness(told_at=90.0, next_s=2.0, error="unavailable: no", retry_at=104.0)
    assert trouble(failed, now=91.0) == "STALE for 1 s, next try in 13 s: unavailable: no"
    first = Freshness(error="unavailable: no", retry_at=4.0)
    assert trouble(first, now=5.0) == "NO DATA, next try in 0 s: unavailable: no"
    assert ago(0) == NOW
