"""The folder of `xce up`: who holds it, where everything lies, and up.json, which others read."""

import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any


class FolderInUse(Exception):
    """Another `xce up` lives on this folder; the message says which."""


class UpFolder:
    """Paths only, but for the lock. A folder that nobody named is temporary."""

    def __init__(self, data: Path | None) -> None:
        self.is_temporary = data is None
        if data is None:
            self.root = Path(tempfile.mkdtemp(prefix="xce-up-"))
        else:
            self.root = data.absolute()
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.postgres = self.root / "postgres"
        self.state = self.root / "up.json"
        self.owner_token = self.root / "owner.token"
        self.operator_token = self.root / "operator.token"
        self._lock_file = self.root / "up.lock"
        self._ports = self.root / "ports.json"
        self._lock = -1
        self._written = ""

    def lock(self) -> None:
        """Keep every other `xce up` out for as long as this process lives. Raises FolderInUse."""
        self._lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 32).decode(errors="replace").strip() or "unknown"
            raise FolderInUse(
                f"another xce up (process {holder}) runs on {self.root}: stop it first, "
                "or give another --data"
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())

    def host(self, name: str) -> Path:
        """The run folder of one host's worker and keeper."""
        return self._made("hosts", name)

    def passfile(self, login: str) -> Path:
        return self._made("passfiles") / login

    def log(self, name: str) -> Path:
        return self._made("logs") / f"{name}.log"

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace up.json by a rename, so that a reader never sees half of it."""
        text = json.dumps(state) + "\n"
        if text == self._written:
            return
        scratch = self.state.with_suffix(".tmp")
        scratch.write_text(text)
        scratch.replace(self.state)
        self._written = text

    def last_ports(self) -> list[int]:
        """The ports of the controllers of the last run here; running tasks know the first."""
        try:
            return [int(port) for port in json.loads(self._ports.read_text())]
        except (FileNotFoundError, ValueError):
            return []

    def keep_ports(self, ports: list[int]) -> None:
        self._ports.write_text(json.dumps(ports))

    def leave(self) -> None:
        """Nothing runs here any more: forget up.json, or the folder if it was temporary."""
        if self.is_temporary:
            shutil.rmtree(self.root)
        else:
            self.state.unlink(missing_ok=True)

    def _made(self, *parts: str) -> Path:
        path = self.root.joinpath(*parts)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path
