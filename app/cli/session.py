"""One command's talk with the API: opens the client, turns its errors into words and exit codes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from app.client.client import Client
    from app.client.errors import ApiError

ENDED_BADLY = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
CONFLICT = 5
UNAVAILABLE = 6
NOT_ALLOWED = 7
TIMED_OUT = 124

#: The world had moved on: read again, then decide anew.
CONFLICTS = frozenset({"stale_generation", "idempotency_key_reused", "too_late"})
BY_STATUS = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 500: UNAVAILABLE}


@contextmanager
def client(*, patience_s: float = 5.0) -> Iterator["Client"]:
    """A client from the environment. Ends the program where a call fails.

    What gets no answer is repeated for `patience_s` at most.
    """
    from app.client.client import Client
    from app.client.errors import ApiError, NotConfigured

    try:
        opened = Client.from_environment(patience_s=patience_s, on_retry=SayOnce())
    except NotConfigured as error:
        fail(str(error), USAGE)
    try:
        yield opened
    except ApiError as error:
        fail(words(error), exit_code(error))
    finally:
        opened.close()


def exit_code(error: "ApiError") -> int:
    """The exit code that tells a script what kind of failure this was."""
    from app.client.errors import Unavailable

    if isinstance(error, Unavailable):
        return UNAVAILABLE
    if error.code in CONFLICTS:
        return CONFLICT
    return BY_STATUS.get(error.status, REFUSED)


def say(message: str) -> None:
    """A message, which is not a result."""
    print(f"xcecli: {message}", file=sys.stderr)


def fail(message: str, code: int) -> NoReturn:
    say(message)
    sys.exit(code)


def words(error: "ApiError") -> str:
    """What went wrong, what to do, and the figures that matter."""
    figures = ", ".join(f"{name} {_figure(value)}" for name, value in error.figures.items())
    return f"{error.code}: {error.detail}" + (f" ({figures})" if figures else "")


def _figure(value: object) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value) or "none"
    return "none" if value is None else str(value)


class SayOnce:
    """Tells the first retry only: a screen full of the same line helps nobody."""

    def __init__(self) -> None:
        self._has_said = False

    def __call__(self, why: str) -> None:
        if not self._has_said:
            say(f"{why}; trying again")
        self._has_said = True
