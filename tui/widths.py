"""How many cells of a terminal texts take, and how columns and tables share them."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

ELLIPSIS = "…"


def width_of(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def fitted(text: str, width: int, *, is_right: bool = False) -> str:
    """The text in exactly so many cells; one that was cut ends in an ellipsis."""
    length = width_of(text)
    if length > width:
        return set_cell_size(text, width - 1) + ELLIPSIS if width > 0 else ""
    padding = " " * (width - length)
    return padding + text if is_right else text + padding


def shared(widths: Sequence[int], least: Sequence[int | None], total: int) -> list[int]:
    """The widths, of which those that may shrink do so, the widest first, until all fit in total.

    What does not fit even then is cut off at the right.
    """
    found = list(widths)
    excess = sum(found) - total
    while excess > 0:
        over = [
            (found[place], -place)
            for place, floor in enumerate(least)
            if floor is not None and found[place] > floor
        ]
        if not over:
            break
        widest = -max(over)[1]
        found[widest] -= 1
        excess -= 1
    return found


def heights(needs: Sequence[int], *, current: int, total: int) -> list[int]:
    """Lines for each, at most what it needs: an equal part, two for the current one, then more."""
    part = total // (len(needs) + 1)
    found = [min(need, part) for need in needs]
    for place in (current, *range(len(needs))):
        found[place] += min(needs[place] - found[place], total - sum(found))
    return found


def folded(text: str, width: int) -> list[str]:
    """The text in lines of at most so many cells, broken at a space where the line has one."""
    lines, line, length = [], "", 0
    for char in text:
        cells = width_of(char)
        if length + cells > width:
            whole, space, rest = line.rpartition(" ")
            line, rest = (whole, rest) if space and char != " " else (line, "")
            lines.append(line.rstrip())
            line, length = rest, width_of(rest)
        if line or char != " ":
            line, length = line + char, length + cells
    return [*lines, line]
