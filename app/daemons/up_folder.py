"""The folder of `xce up`: who holds it, where everything lies, and what it remembers."""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from app.daemons.run_folder import folder_id


class FolderInUse(Exception):
    """Another `xce up` lives on this folder; the message says which."""


class KeptFence(NamedTuple):
    """What the setting was before the tasks were to be kept, and what it was lengthened to."""

    before_s: float
    keep_s: float


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
        self._kept_fence = self.root / "kept-fence.json"
        self._lock_file = self.root / "up.lock"
        self._ports = self.root / "ports.json"
        self._place = self.root / "database"
        self._lock = -1
        self._written: dict[str, Any] = {}

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

    @property
    def mark(self) -> str:
        """What the command lines of this folder's daemons have in them."""
        return f"--folder {self.root}"

    def host(self, name: str) -> Path:
        """The run folder of one host's worker and keeper."""
        return self._made("hosts", name)

    def host_names(self) -> list[str]:
        """All hosts that this folder ever had."""
        return sorted(path.name for path in self.root.glob("hosts/*") if path.is_dir())

    def host_ids(self, names: Iterable[str]) -> dict[str, str]:
        """What tells their run folders from every other one."""
        return {name: folder_id(self.host(name)) for name in names}

    def passfile(self, login: str) -> Path:
        return self._made("passfiles") / login

    def log(self, name: str) -> Path:
        return self._made("logs") / f"{name}.log"

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace up.json, which others read."""
        if state != self._written:
            write_json(self.state, state)
            self._written = state

    def forget_state(self) -> None:
        """Until it is written again nothing runs here."""
        self.state.unlink(missing_ok=True)
        self._written = {}

    def kept_ports(self) -> list[int]:
        """The controllers' ports of the last time; running tasks know the first."""
        ports = read_json(self._ports)
        return [port for port in ports if isinstance(port, int)] if isinstance(ports, list) else []

    def keep_ports(self, ports: list[int]) -> None:
        write_json(self._ports, ports)

    def kept_fence(self) -> KeptFence | None:
        """What an earlier run lengthened and nobody set back yet."""
        told = read_json(self._kept_fence)
        return KeptFence(told["before_s"], told["keep_s"]) if isinstance(told, dict) else None

    def keep_fence(self, fence: KeptFence) -> None:
        write_json(self._kept_fence, fence._asdict())

    def forget_fence(self) -> None:
        self._kept_fence.unlink(missing_ok=True)

    def database(self) -> str | None:
        """Which database the hosts here belong to; None when none was ever used."""
        return self._place.read_text().strip() if self._place.exists() else None

    def keep_database(self, place: str) -> None:
        self._place.write_text(f"{place}\n")

    def leave(self) -> None:
        """No daemon runs here any more: forget up.json, or the folder if it was temporary."""
        if self.is_temporary:
            shutil.rmtree(self.root)
        else:
            self.forget_state()

    def _made(self, *parts: str) -> Path:
        path = self.root.joinpath(*parts)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path


def write_json(path: Path, told: object) -> None:
    """Replace a file by a rename, so that a reader never sees half of it."""
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(told) + "\n")
    scratch.replace(path)


def read_json(path: Path) -> object:
    """None where there is no such file, or half of one."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
