"""Everything PostgreSQL reads; Python here only locates and names the files."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SqlFiles:
    """Where the files of one tree lie, each kind in the order in which it is applied."""

    root: Path

    def migrations(self) -> tuple[Path, ...]:
        return self._sorted("migrations/*.sql")

    def derived(self) -> tuple[Path, ...]:
        """What is applied anew whenever any of it changed: it holds no data."""
        return (
            *self._sorted("generated/lifecycles.sql"),
            *self._sorted("routines/*.sql"),
            *self._sorted("views/*.sql"),
            *self._sorted("grants.sql"),
        )

    def _sorted(self, pattern: str) -> tuple[Path, ...]:
        return tuple(sorted(self.root.glob(pattern)))


FILES = SqlFiles(Path(__file__).resolve().parent)
