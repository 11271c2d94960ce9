"""`--wait`: until something is as it was waited for."""

import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.cli.session import TIMED_OUT, say

if TYPE_CHECKING:
    from app.client.client import Client
    from app.wire.resizes import Resize

Thing = TypeVar("Thing")
FIRST_PAUSE_S = 0.05
PAUSE_MAX_S = 1.0


def wait_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--wait --timeout S`."""
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, 2**31 - 1),
        metavar="SECONDS",
        help="With --wait: give up after so long, with exit code 124.",
    )
    wait = click.option("--wait", is_flag=True, help="Wait until it has ended.")
    return wait(timeout(command))


def waited(
    thing: Thing,
    *,
    again: Callable[[], Thing],
    until: Callable[[Thing], bool],
    timeout_s: float | None,
) -> tuple[Thing, bool]:
    """What it is in the end, and whether that was in time; asks again, ever more rarely."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while not until(thing):
        left_s = pause_s if give_up_at is None else give_up_at - time.monotonic()
        if left_s <= 0:
            return thing, False
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, PAUSE_MAX_S)
        thing = again()
    return thing, True


def waited_for_request(
    api: "Client", request: "Resize", *, timeout_s: float | None
) -> tuple["Resize", bool]:
    """The request in the end, and whether that was in time; the API says when."""
    give_up_at = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while request.finished_at is None:
        left_s = give_up_at - time.monotonic()
        if left_s <= 0:
            return request, False
        request = api.wait(request.id, timeout_s=left_s)
    return request, True


def end(is_in_time: bool, *, is_good: bool, what: str) -> None:
    """Leave the program with the code of what was waited for; return where all is well."""
    if not is_in_time:
        say(f"{what} when the time was up; ask again later")
        sys.exit(TIMED_OUT)
    if not is_good:
        say(what)
        sys.exit(1)
