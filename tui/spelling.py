"""How values read on a screen. Whatever somebody typed is shown as it is and never acted on."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET, Struct

NOTHING = "-"
#: Nobody reads more of one value on a screen; what is left out is counted.
TEXT_MAX = 2_000
#: These change how wide the character before them is, on some terminals.
_VARIANTS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_UNITS = ((100, 1, "s"), (6_000, 60, "m"), (172_800, 3_600, "h"))
_DAY_S = 86_400
#: What the eye should find, by the state's name; the name itself is always there too.
MOODS = {
    **dict.fromkeys(("running", "up", "done", "released"), "well"),
    **dict.fromkeys(("pending", "placed", "committed", "joining"), "waiting"),
    **dict.fromkeys(("stopping", "draining"), "waiting"),
    **dict.fromkeys(("exited", "failed", "cancelled", "lost", "down"), "ill"),
}


def literal(text: str) -> str:
    """The text with everything spelled out that could move a cursor or hide."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else _spelled_out(char) for char in text)


def _is_plain(char: str) -> bool:
    return char.isprintable() and char not in _VARIANTS


def _spelled_out(char: str) -> str:
    return char.encode("unicode_escape").decode()


def or_nothing(text: str | None) -> str:
    return NOTHING if text is None else literal(text)


def age(since: datetime | None, now: datetime) -> str:
    """How long ago, in one unit; never negative, because clocks differ."""
    if since is None:
        return NOTHING
    seconds = max(0, (now - since) // timedelta(seconds=1))
    for below, unit_s, name in _UNITS:
        if seconds < below:
            return f"{seconds // unit_s}{name}"
    return f"{seconds // _DAY_S}d"


def spelled(value: Any) -> str:
    """A member of an answer as one line; what is too long is cut and says so."""
    text = _whole(value)
    left_out = len(text) - TEXT_MAX
    return text if left_out <= 0 else f"{text[:TEXT_MAX]}… ({left_out} characters more)"


def _whole(value: Any) -> str:
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else "no"
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%SZ")
        case list() | tuple():
            text = ", ".join(_whole(item) for item in value)
        case dict():
            text = ", ".join(_pair(*item) for item in value.items())
        case Struct():
            text = ", ".join(_pair(*item) for item in members(value))
        case _:
            text = literal(str(value))
    return text or NOTHING


def members(thing: Struct) -> Iterator[tuple[str, Any]]:
    """The members that were told."""
    for name in thing.__struct_fields__:
        value = getattr(thing, name)
        if value is not UNSET:
            yield name, value


def _pair(name: Any, value: Any) -> str:
    return f"{literal(str(name))}={_whole(value)}"
