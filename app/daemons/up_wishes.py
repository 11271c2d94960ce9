"""What somebody wants of `xce up`, and the two ways in which it ends early."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DAY_S = 86_400.0


class UpError(Exception):
    """The cluster cannot be started or go on; the message says why."""


class StopAsked(Exception):
    """Somebody asked for the end while something else was going on."""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    data: Path | None = None
    workers: int = 3
    controllers: int = 1
    cpus: int = 4
    port: int = 8420
    #: A server that is there already, instead of an embedded one.
    database_url: str | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    #: Tasks outlive the end of this run for so long; None ends them with it.
    keep_s: float | None = None
    as_json: bool = False

    @property
    def hosts(self) -> list[str]:
        return [f"h{i}" for i in range(1, self.workers + 1)]
