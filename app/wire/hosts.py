"""Hosts as REST speaks of them."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from app.wire.fields import Amount, Count, Labels

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


class HostPut(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `PUT /v1/hosts/{name}`: what the machine has to give, as a whole.

    A name that is not known makes a host in `joining`. Its login and password come by
    `xce host add NAME`, over the database.
    """

    cpus: Count
    mem_mib: Amount
    gpus: Amount = 0
    labels: Labels = {}


class HostDrain(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/hosts/{name}/drain`.

    `shrink` also asks each job to give its tasks there back, where its minimum allows that; a job
    whose head is there cannot.
    """

    shrink: bool = False


class HostDown(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/hosts/{name}/down`: the operator vouches that a lost host is off.

    That counts as an expired fence: its tasks end as `lost` at once.
    """

    confirm_dead: bool = False
