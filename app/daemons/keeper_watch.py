"""Follows one host's keeper from outside: its process id while it lives, and its end."""

import json
import os
import socket
from pathlib import Path
from typing import Any

ANSWER_S = 2.0
SHUTDOWN_S = 3.0


class KeeperWatch:
    """One connection to the keeper of a run folder, made again when that keeper is replaced."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._connection: socket.socket | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The keeper's process id, None while there is none."""
        if self._connection is None or not self._is_open(self._connection):
            self.close()
            self._meet()
        return self._pid

    def tasks(self) -> list[dict[str, Any]]:
        """The keeper's view of its tasks. Raises OSError when it does not answer."""
        tasks: list[dict[str, Any]] = self._listed()["tasks"]
        return tasks

    def fence_s(self) -> float:
        """How long its fence is from one exchange on. Raises OSError when it does not answer."""
        fence = self._listed()["fence"]
        return float(fence["deadline_boottime_ns"] - fence["sent_at_boottime_ns"]) / 1e9

    def shut_down(self, *, grace_s: float = 0, patience_s: float = SHUTDOWN_S) -> bool:
        """End it and every task it still has; False when it did not answer in time."""
        if self.pid is None or self._connection is None:
            return True
        try:
            request = {"do": "shutdown", "stop_all": True, "grace_s": grace_s}
            self._ask(self._connection, request, patience_s=grace_s + patience_s)
            # It says yes first and leaves then: closed means gone.
            while self._connection.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        finally:
            self.close()
        return True

    def close(self) -> None:
        self._pid = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _listed(self) -> dict[str, Any]:
        if self.pid is None or self._connection is None:
            raise ConnectionResetError("there is no keeper")
        return self._ask(self._connection, {"do": "list"}, patience_s=ANSWER_S)

    def _meet(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Through a descriptor of the folder, because a socket's path may have 107 bytes only.
            folder = os.open(self._run_dir, os.O_PATH)
            try:
                connection.connect(f"/proc/self/fd/{folder}/keeper.sock")
            finally:
                os.close(folder)
            self._pid = int(self._ask(connection, {"do": "list"}, patience_s=ANSWER_S)["pid"])
            self._connection = connection
        except OSError:
            connection.close()

    def _ask(
        self, connection: socket.socket, request: dict[str, Any], *, patience_s: float
    ) -> dict[str, Any]:
        """The answer to one request; events in between are dropped. Raises OSError."""
        connection.settimeout(patience_s)
        connection.sendall(json.dumps({"id": 1, **request}).encode() + b"\n")
        received = bytearray()
        while True:
            part = connection.recv(65536)
            if not part:
                raise ConnectionResetError("the keeper closed the connection")
            received += part
            *lines, rest = received.split(b"\n")
            received = bytearray(rest)
            for line in lines:
                answer: dict[str, Any] = json.loads(line)
                if answer.get("id") == 1:
                    return answer

    def _is_open(self, connection: socket.socket) -> bool:
        """Drop the events that came in; False when the other end is gone."""
        connection.setblocking(False)
        try:
            while connection.recv(65536):
                pass
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False
