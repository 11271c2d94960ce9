"""What the detail pane tells of one thing: every member that the API gives."""

import shlex
from collections.abc import Iterable, Sequence

from msgspec import Struct

from app.wire.jobs import Job
from app.wire.resizes import Next, Resize
from tui.spelling import NOTHING, literal, members, spelled
from tui.widths import folded, width_of

#: What people look for first.
FIRST = ("state", "reason", "waits_on", "why", "may", "command")
#: Told as they would be typed.
COMMANDS = frozenset({"command", "head_command"})
GAP = 2


def pairs(thing: Struct, requests: Iterable[Resize] = ()) -> list[tuple[str, str]]:
    """Names and texts; of a job also who has to move for its open requests."""
    found: dict[str, str] = {}
    for name, value in members(thing):
        if isinstance(value, Next):
            found |= {part: spelled(told) for part, told in members(value)}
        elif name == "env":
            # A screen is looked at over shoulders, and what is in there are passwords.
            found[name] = f"{spelled(sorted(value))} (values are not shown)" if value else NOTHING
        elif name in COMMANDS and value:
            found[name] = spelled(shlex.join(value))
        else:
            found[name] = spelled(value)
    if isinstance(thing, Job):
        found["waits_on"] = "\n".join(_mover(request) for request in requests) or NOTHING
    first = [(name, found.pop(name)) for name in FIRST if name in found]
    return first + list(found.items())


def _mover(request: Resize) -> str:
    reason = f" ({literal(request.reason)})" if request.reason else ""
    waits_on, why = literal(request.next.waits_on), literal(request.next.why)
    return f"{request.kind} {request.id} waits on {waits_on}: {why}{reason}"


def listed(told: Sequence[tuple[str, str]], width: int) -> list[str]:
    """One below the other, long texts in several lines."""
    left = max((width_of(name) for name, _ in told), default=0) + GAP
    lines = []
    for name, text in told:
        first, *rest = _folded(text, max(1, width - left))
        lines.append(f"{name:<{left}}{first}")
        lines += [" " * left + part for part in rest]
    return lines


def _folded(text: str, width: int) -> list[str]:
    return [part for line in text.split("\n") for part in folded(line, width)]


def packed(told: Sequence[tuple[str, str]], width: int) -> list[str]:
    """As many beside each other as fit; what is not set comes last."""
    ordered = sorted(told, key=lambda pair: pair[1] == NOTHING)
    lines, line = [], ""
    for name, text in ordered:
        piece = f"{name}: {text}"
        joined = f"{line}  {piece}" if line else piece
        if line and width_of(joined) > width:
            lines += _folded(line, width)
            joined = piece
        line = joined
    return [*lines, *_folded(line, width)]
