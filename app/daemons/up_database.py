"""The database of `xce up`: an embedded server that is tended here, or one that was given."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from app.db import embedded
from app.db.given import Held

Say = Callable[[str], None]


class UpDatabase(Protocol):
    """What a supervisor does with its database."""

    @property
    def url(self) -> str:
        """As the owner of the schema; enough for `xce check`."""
        ...

    @property
    def pid(self) -> int | None:
        """The server's process, where it is ours."""
        ...

    def tend(self, say: Say) -> None:
        """Start it again if it died."""
        ...

    def stop(self) -> None:
        """Leave nothing of ours behind."""
        ...


class EmbeddedDatabase:
    """A server of our own, adopted or started on its folder. Raises EmbeddedError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = embedded.start(folder)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def tend(self, say: Say) -> None:
        if is_alive(self._server.pid):
            return
        say("PostgreSQL died; it is started again")
        try:
            self._server = embedded.start(self._folder, port=self._server.port)
        except embedded.EmbeddedError as error:
            say(f"it does not start: {error}")

    def stop(self) -> None:
        embedded.stop(self._server)


class GivenDatabase:
    """Somebody else's server, which stays as it is. Raises DatabaseRefused, and Unavailable."""

    pid = None

    def __init__(self, url: str) -> None:
        self.url = url
        self._held = Held(url)

    def tend(self, say: Say) -> None:
        """Its own people tend it."""

    def stop(self) -> None:
        self._held.close()


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        # Without /proc, on macOS.
        return True
