"""The database of `xce up`: a server of its own, which it tends, or one that was there before."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from app.daemons.children import is_alive
from app.db import embedded


class Database(Protocol):
    """What the supervisor needs of either."""

    @property
    def url(self) -> str: ...

    @property
    def pid(self) -> int | None:
        """The server's process; None when it is somebody else's."""
        ...

    def tend(self, say: Callable[[str], None]) -> None:
        """See that it runs."""
        ...

    def stop(self, patience_s: float) -> None:
        """Stop what was started here. Raises EmbeddedError."""
        ...


class EmbeddedDatabase:
    """The server of a folder, started or adopted. `check` may raise while somebody waits for it."""

    def __init__(self, server: embedded.Server, check: Callable[[], None]) -> None:
        self._server = server
        self._check = check

    @classmethod
    def start(cls, root: Path, check: Callable[[], None]) -> "EmbeddedDatabase":
        """Raises EmbeddedError, and what `check` raises."""
        return cls(embedded.start(root, check=check), check)

    @classmethod
    def found(cls, root: Path) -> "EmbeddedDatabase | None":
        """The one that runs there; None when none does."""
        server = embedded.find(root) if root.exists() else None
        return None if server is None else cls(server, _no_check)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def tend(self, say: Callable[[str], None]) -> None:
        if is_alive(self._server.pid):
            return
        say("PostgreSQL died; it is started again")
        try:
            root, port = self._server.root, self._server.port
            self._server = embedded.start(root, port=port, check=self._check)
        except embedded.EmbeddedError as error:
            say(f"it does not start: {error}")

    def stop(self, patience_s: float) -> None:
        embedded.stop(self._server, patience_s=patience_s)


class GivenDatabase:
    """A server that is not ours to start or to stop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pid: int | None = None

    def tend(self, say: Callable[[str], None]) -> None:
        return

    def stop(self, patience_s: float) -> None:
        return


def _no_check() -> None:
    return
