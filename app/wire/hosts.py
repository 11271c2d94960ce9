"""Hosts as REST speaks of them."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

HostState = Literal["joining", "up", "draining", "lost", "down", "removed"]


class Host(Struct, frozen=True, gc=False):
    """A machine's capacity, what of it is used and held, and when its worker was last heard."""

    id: int
    name: str
    state: HostState
    reason: str | None
    drain_wanted: bool
    cpus: int
    mem_mib: int
    gpus: int
    labels: dict[str, Any]
    cpus_used: int
    cpus_held: int
    mem_mib_used: int
    mem_mib_held: int
    gpus_used: int
    gpus_held: int
    last_seen_at: datetime | None
