"""`-o` and `--watch` of every command that lists or shows: draw once, or again and again."""

import functools
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from app.cli.output import many_text, one_text, output_option
from app.cli.session import client, say, words

if TYPE_CHECKING:
    from app.client.client import Client

WATCH_S = 2.0
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
#: Lines that are too long are cut off instead of pushing the others down.
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
BETWEEN = {"json": "", "yaml": "---\n"}


@dataclass(frozen=True)
class View:
    """How a command shows what it fetches, and how often."""

    output: str
    watch_s: float | None

    def many(self, columns: Sequence[str], fetch: Callable[["Client"], Iterable[Any]]) -> None:
        """A list."""
        self.text(lambda api: many_text(fetch(api), self.output, columns))

    def one(self, columns: Sequence[str], fetch: Callable[["Client"], Any]) -> None:
        """One resource."""
        self.text(lambda api: one_text(fetch(api), self.output, columns))

    def text(self, draw: Callable[["Client"], str]) -> None:
        """What `draw` makes, once or for ever. Ends the program where the API refuses."""
        if self.watch_s is None:
            with client() as api:
                print(draw(api), end="")
            return
        screen = Screen(self.watch_s) if sys.stdout.isatty() else Stream(self.output)
        # No patience: what is watched is asked for again anyway.
        with client(patience_s=0) as api, screen:
            while True:
                screen.show(*_drawn(api, draw))
                time.sleep(self.watch_s)


def view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-o table|wide|json|yaml --watch [SECONDS]`, handed to the command as its `view`."""

    @functools.wraps(command)
    def with_view(*, output: str, watch_s: float | None, **given: Any) -> Any:
        return command(view=View(output, watch_s), **given)

    watch = click.option(
        "--watch",
        "watch_s",
        type=click.FloatRange(0.1, 86_400),
        is_flag=False,
        flag_value=WATCH_S,
        metavar="[SECONDS]",
        help="Show it again every 2 seconds, or every so many. Put it last, or write --watch=5.",
    )
    return watch(output_option(with_view))


def _drawn(api: "Client", draw: Callable[["Client"], str]) -> tuple[str | None, str | None]:
    """The picture, or why there is none now."""
    from app.client.errors import Unavailable

    try:
        return draw(api), None
    except Unavailable as error:
        return None, words(error)


class Screen:
    """Redraws in place on a terminal; while the API is away the last picture stays."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last = ""

    def __enter__(self) -> "Screen":
        sys.stdout.write(f"{NO_WRAP}{HOME}{CLEAR_BELOW}")
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.write(WRAP)
        sys.stdout.flush()

    def show(self, text: str | None, trouble: str | None) -> None:
        self._last = self._last if text is None else text
        heading = f"every {self._every_s:g} s, {time.strftime('%H:%M:%S')}, Ctrl-C ends"
        lines = [f"{heading}: {trouble}" if trouble else heading, "", *self._last.splitlines()]
        # The last line stays empty: a newline there would scroll.
        shown = lines[: max(1, shutil.get_terminal_size().lines - 1)]
        drawn = "".join(f"{line}{CLEAR_LINE}\n" for line in shown)
        sys.stdout.write(f"{HOME}{drawn}{CLEAR_BELOW}")
        sys.stdout.flush()


class Stream:
    """Prints anew each time; trouble is told once, on stderr."""

    def __init__(self, output: str) -> None:
        self._between = BETWEEN.get(output, "\n")
        self._is_first = True
        self._is_troubled = False

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, text: str | None, trouble: str | None) -> None:
        if trouble is not None and not self._is_troubled:
            say(f"{trouble}; still watching")
        self._is_troubled = trouble is not None
        if text is not None:
            print(text if self._is_first else self._between + text, end="", flush=True)
            self._is_first = False
