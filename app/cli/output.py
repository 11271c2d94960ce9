"""Results: aligned tables for people, JSON and YAML for programs; colour on a terminal only."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import click

GREEN = "\x1b[32m"
YELLOW = "\x1b[33m"
RED = "\x1b[31m"
BOLD = "\x1b[1m"
PLAIN = "\x1b[0m"
COLOURS = {
    **dict.fromkeys(("running", "up", "done", "released"), GREEN),
    **dict.fromkeys(("pending", "placed", "committed", "assigned", "starting", "joining"), YELLOW),
    **dict.fromkeys(("stopping", "draining"), YELLOW),
    **dict.fromkeys(("exited", "failed", "cancelled", "lost", "down"), RED),
}
GAP = "  "


def _same(value: Any) -> Any:
    return value


def _as_typed(argv: list[str] | None) -> str | None:
    import shlex

    return None if argv is None else shlex.join(argv)


#: Members that read better in a way of their own.
SPELLED: dict[str, Callable[[Any], Any]] = {
    "command": _as_typed,
    "head_command": _as_typed,
    "next": lambda next_: f"{next_.waits_on}: {next_.why}",
}


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-o table|wide|json|yaml`."""
    return click.option(
        "-o",
        "output",
        type=click.Choice(["table", "wide", "json", "yaml"]),
        default="table",
        show_default=True,
        help="How to print: a table, one with all columns, or JSON or YAML as the API gives it.",
    )(command)


def print_one(thing: Any, output: str, columns: Sequence[str]) -> None:
    print(one_text(thing, output, columns), end="")


def print_many(things: Iterable[Any], output: str, columns: Sequence[str]) -> None:
    print(many_text(things, output, columns), end="")


def one_text(thing: Any, output: str, columns: Sequence[str]) -> str:
    """One resource: its members below each other, or as the API gives it."""
    if output in PROGRAMS:
        return PROGRAMS[output](thing)
    members = _members(thing)
    names = [n for n in (members if output == "wide" else columns) if n in members]
    width = max((len(name) for name in names), default=0)
    texts = {name: plain_text(SPELLED.get(name, _same)(members[name])) for name in names}
    return "".join(
        f"{_bold(name.ljust(width))}{GAP}{_painted(name, text)}\n" for name, text in texts.items()
    )


def many_text(things: Iterable[Any], output: str, columns: Sequence[str]) -> str:
    """A list: a row each under one heading, or in the API's shape."""
    found = list(things)
    if output in PROGRAMS:
        return PROGRAMS[output]({"items": found, "next": None})
    rows = [_members(thing) for thing in found]
    names = list(rows[0]) if output == "wide" and rows else list(columns)
    cells = [[plain_text(row.get(name)) for name in names] for row in rows]
    is_number = [_is_numeric(row.get(name) for row in rows) for name in names]
    widths = [
        max([len(name), *(len(cell[place]) for cell in cells)]) for place, name in enumerate(names)
    ]
    shape = list(zip(widths, is_number, strict=True))
    lines = [_bold(_line(names, shape))]
    for cell in cells:
        padded = [_pad(text, *how) for text, how in zip(cell, shape, strict=True)]
        painted = [_painted(n, text) for n, text in zip(names, padded, strict=True)]
        lines.append(GAP.join(painted).rstrip())
    return "".join(f"{line}\n" for line in lines)


def _line(texts: Sequence[str], shape: Sequence[tuple[int, bool]]) -> str:
    return GAP.join(_pad(text, *how) for text, how in zip(texts, shape, strict=True)).rstrip()


def _pad(text: str, width: int, is_number: bool) -> str:
    return text.rjust(width) if is_number else text.ljust(width)


def _is_numeric(values: Iterable[Any]) -> bool:
    from decimal import Decimal

    found = [value for value in values if value is not None]
    return bool(found) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in found
    )


def _members(thing: Any) -> dict[str, Any]:
    from msgspec import UNSET

    names = thing.__struct_fields__
    values = {name: getattr(thing, name) for name in names}
    return {name: value for name, value in values.items() if value is not UNSET}


def plain_text(value: Any) -> str:
    """A value as people read it; nothing in it moves a cursor."""
    match value:
        case None:
            text = "-"
        case bool():
            text = "yes" if value else "no"
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%SZ")
        case list() | tuple():
            text = ",".join(plain_text(item) for item in value) or "-"
        case dict():
            text = ",".join(f"{name}={plain_text(item)}" for name, item in value.items()) or "-"
        case _ if hasattr(value, "__struct_fields__"):
            text = " ".join(f"{name}={plain_text(item)}" for name, item in _members(value).items())
        case _:
            text = str(value)
    # A name with a control character must not move anybody's cursor.
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _json(value: Any) -> str:
    import msgspec

    from app.wire.encoding import encode

    return msgspec.json.format(encode(value)).decode() + "\n"


def _yaml(value: Any) -> str:
    """The same as the JSON: times as text, and no digit of a number lost."""
    from decimal import Decimal

    import msgspec
    import yaml

    from app.wire.encoding import encode

    exact: Any = type("Exact", (yaml.SafeDumper,), {})
    exact.add_representer(
        Decimal, lambda dumper, number: dumper.represent_scalar(YAML_FLOAT, str(number))
    )
    plain = msgspec.json.Decoder(float_hook=Decimal).decode(encode(value))
    text: str = yaml.dump(plain, Dumper=exact, sort_keys=False, allow_unicode=True)
    return text


YAML_FLOAT = "tag:yaml.org,2002:float"
PROGRAMS: dict[str, Callable[[Any], str]] = {"json": _json, "yaml": _yaml}


def is_colourful() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _bold(text: str) -> str:
    return f"{BOLD}{text}{PLAIN}" if is_colourful() else text


def _painted(name: str, text: str) -> str:
    colour = COLOURS.get(text.strip()) if name == "state" else None
    return f"{colour}{text}{PLAIN}" if colour and is_colourful() else text
