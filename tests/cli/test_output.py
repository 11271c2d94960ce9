"""How results look."""

import pytest

from app.cli.output import print_many, print_one
from app.wire.jobs import JobSubmit
from app.wire.pages import Page
from app.wire.resizes import Next


def test_columns_are_aligned_and_numbers_lie_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_many([Page([1, 2], "a"), Page([], None)], "table", ("items", "next"))
    assert capsys.readouterr().out == "items  next\n1,2    a\n-      -\n"


def test_an_empty_list_still_has_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_many([], "table", ("id", "state"))
    assert capsys.readouterr().out == "id  state\n"


def test_control_characters_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_one(Next(may=(), waits_on="\x1b[2Jx", why="y"), "table", ("waits_on",))
    assert capsys.readouterr().out == "waits_on  ?[2Jx\n"


def test_colour_is_for_terminals_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.cli import output

    monkeypatch.setattr(output, "is_colourful", lambda: True)
    print_one(Next(may=(), waits_on="x", why="y"), "table", ("why",))
    assert "\x1b[1m" in capsys.readouterr().out


def test_a_command_is_shown_as_it_would_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    print_one(JobSubmit(command=["echo", "a b"]), "table", ("command",))
    assert capsys.readouterr().out == "command  echo 'a b'\n"
