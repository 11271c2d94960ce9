"""What runs under one `xce up`, shared by its start and its end."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field

from app.daemons.children import Child
from app.daemons.keeper_watch import KeeperWatch
from app.daemons.up_cluster import Cluster
from app.daemons.up_database import Database
from app.db.claim import Claim


@dataclass
class Running:
    """What runs here, as far as the start has come: what the end has to end."""

    ports: ExitStack = field(default_factory=ExitStack)
    database: Database | None = None
    claim: Claim | None = None
    cluster: Cluster | None = None
    apis: list[str] = field(default_factory=list)
    controllers: list[Child] = field(default_factory=list)
    workers: list[Child] = field(default_factory=list)
    keepers: dict[str, KeeperWatch] = field(default_factory=dict)

    @property
    def children(self) -> list[Child]:
        return [*self.controllers, *self.workers]


def say(what: str) -> None:
    print(f"xce up: {what}", file=sys.stderr, flush=True)
