"""Which output files the tasks of this host write to, as the database tells with every fetch."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from app.worker.launch import output_name
from app.worker.reconcile import Desired, Key

Names = frozenset[str]


@dataclass(frozen=True)
class KeptSizes:
    """How much of an output file is kept, while its task runs and afterwards."""

    running_mib: float
    ended_mib: float


class Written:
    """The names of open tasks' output files, and of those whose task ended since they were taken.

    Whatever was started was listed by at least one fetch before it ended.
    """

    def __init__(self) -> None:
        #: Set whenever a task has ended whose files may be cut to what is kept.
        self.news = asyncio.Event()
        self._open: dict[Key, Names] = {}
        self._ended: set[str] = set()

    @property
    def open(self) -> Names:
        """Of all open tasks."""
        return frozenset().union(*self._open.values())

    def learn(self, rows: Iterable[Desired], *, host: str) -> None:
        """Take over one whole answer to a fetch."""
        listed = {row.key: row for row in rows}
        for key in self._open.keys() - listed.keys():
            self._ended |= self._open.pop(key)
            self.news.set()
        for key in listed.keys() - self._open.keys():
            self._open[key] = _names(listed[key], host)

    def take_ended(self) -> Names:
        """Those of ended tasks, each once; one that an open task writes to as well is left out."""
        taken, self._ended = self._ended, set()
        self.news.clear()
        return frozenset(taken - self.open)


def _names(row: Desired, host: str) -> Names:
    try:
        return frozenset(
            (
                output_name("stdout", row.stdout, key=row.key, host=host),
                output_name("stderr", row.stderr, key=row.key, host=host),
            )
        )
    except ValueError:
        # Such a task was refused and has written nothing.
        return frozenset()
