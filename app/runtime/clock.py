"""The one place that asks this machine for the time."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """This machine's wall clock in UTC; whatever judges rows asks the database's clock instead."""
    return datetime.now(UTC)


def elapsed_s() -> float:
    """Seconds on a clock that never jumps and goes on while the machine sleeps."""
    return time.clock_gettime(_STEADY)


# On macOS the raw clock sleeps with the machine; the database's fence makes that harmless.
_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
