"""The lines above the tables: which server, who asks, and how old all of it is."""

from msgspec import Struct

from tui.spelling import literal

#: So much later than expected an answer may come before it is called late.
LATE_S = 5.0


class Freshness(Struct, frozen=True):
    """How it stands with the answers; times in seconds on a clock that never jumps.

    `error` says why the last try failed, and `retry_at` when the next one comes.
    """

    told_at: float | None = None
    next_s: float = 0.0
    error: str | None = None
    retry_at: float = 0.0

    def is_stale(self, now: float) -> bool:
        if self.error is not None:
            return True
        return self.told_at is not None and now > self.told_at + self.next_s + LATE_S


def headline(server: str, user: str, role: str, fresh: Freshness, *, now: float) -> str:
    """Server, caller and the age of what is shown."""
    who = f"xce  {literal(server)}  {literal(user)} ({role})"
    if fresh.told_at is None:
        return f"{who}  asking …"
    return f"{who}  answered {int(now - fresh.told_at)} s ago"


def trouble(fresh: Freshness, *, now: float) -> str | None:
    """Why what is shown is old, None where it is not."""
    if not fresh.is_stale(now):
        return None
    what = "NO DATA" if fresh.told_at is None else f"STALE for {int(now - fresh.told_at)} s"
    if fresh.error is None:
        return f"{what}: the server was asked and has not answered yet"
    wait_s = max(0, round(fresh.retry_at - now))
    return f"{what}, next try in {wait_s} s: {literal(fresh.error)}"
