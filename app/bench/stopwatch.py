"""Reads the clock that all processes of a machine share, and sums up what was read."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass


def now_ns() -> int:
    """CLOCK_MONOTONIC, which a child's stamp can be compared with."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Spread:
    """Percentiles of samples, in milliseconds."""

    n: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, samples_ns: Sequence[int]) -> "Spread":
        ordered = sorted(samples_ns)
        return cls(len(ordered), percentile(ordered, 0.50) / 1e6, percentile(ordered, 0.99) / 1e6)


def percentile(ordered: Sequence[int], share: float) -> int:
    """The nearest rank: an observed value, never one in between."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
