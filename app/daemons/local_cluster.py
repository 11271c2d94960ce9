"""`xce up` as a child process, for programs that need a cluster for a while."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

STOP_S = 30.0


class LocalClusterError(Exception):
    """The cluster did not come up; the message is what it said."""


@dataclass(frozen=True)
class LocalCluster:
    """A cluster that is up, as `xce up --json` describes it."""

    process: subprocess.Popen[str]
    api: str
    database_url: str
    token_file: Path
    owner_token_file: Path
    state_file: Path

    def pids(self) -> dict[str, Any]:
        """The processes as they are now."""
        pids: dict[str, Any] = json.loads(self.state_file.read_text())["pids"]
        return pids


@contextmanager
def local_cluster(
    options: Sequence[str] = (), *, environment: Mapping[str, str] | None = None
) -> Iterator[LocalCluster]:
    """Start `xce up` in a temporary folder with these options, and stop it in the end."""
    command = [sys.executable, "-P", "-m", "app.admin.main", "up", "--json", "--port", "0"]
    command += ["--parent", str(os.getpid()), *options]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command,
            env=dict(os.environ if environment is None else environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            # Ctrl-C reaches whoever uses the cluster, and that one stops it in good order.
            start_new_session=True,
        )
        try:
            yield described(process, said)
        finally:
            stop(process)


def described(process: subprocess.Popen[str], said: IO[str]) -> LocalCluster:
    """Wait for the one line that says that all is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        said.seek(0)
        raise LocalClusterError(f"xce up failed:\n{said.read().strip()}")
    told = json.loads(line)
    token_file = Path(told["token_file"])
    return LocalCluster(
        process=process,
        api=told["api"],
        database_url=told["database_url"],
        token_file=token_file,
        owner_token_file=Path(told["owner_token_file"]),
        state_file=token_file.with_name("up.json"),
    )


def stop(process: subprocess.Popen[str]) -> None:
    """End it in good order; whoever is interrupted meanwhile waits all the same."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except KeyboardInterrupt:
        process.wait(STOP_S)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
