"""`xce up`: a whole cluster on one machine, kept alive by one small supervisor without a loop."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.daemons.children import Child, Program, stop_all
from app.daemons.keeper_watch import KeeperWatch
from app.daemons.probe import is_ready
from app.daemons.reserved_port import port_of, reserve_port
from app.daemons.up_cluster import Cluster, prepare
from app.daemons.up_folder import FolderInUse, UpFolder
from app.daemons.wakeup import Wakeup
from app.db import embedded
from app.db.administration import Administration
from app.db.errors import DatabaseError

READY_S = 90.0
#: A daemon that dies so often before all is ready will not do better the next time.
DEATHS_MAX = 4
WATCH_S = 0.5
LOOK_S = 0.02
DAEMON_STOP_S = 3.0
#: Tasks get at most 10 s of grace; a little more is for their end to be recorded.
TASKS_STOP_S = 10.5
NOT_INHERITED = ("XCE_", "PG")
INHERITED = ("XCE_FAILPOINTS", "XCE_LOG_LEVEL")


class UpError(Exception):
    """The cluster cannot be started; the message says why."""


class StopAsked(Exception):
    """Somebody asked for the end while the cluster was being started."""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    data: Path | None = None
    workers: int = 3
    controllers: int = 1
    cpus: int = 4
    port: int = 8420
    settings: Mapping[str, float] = field(default_factory=dict)
    as_json: bool = False


def main(wishes: Wishes) -> None:
    """Run the cluster until SIGTERM or Ctrl-C. Raises UpError, and what the database raises."""
    try:
        folder = UpFolder(wishes.data)
        folder.lock()
    except FolderInUse as error:
        raise UpError(str(error)) from error
    supervisor = Supervisor(wishes, folder)
    try:
        supervisor.start()
        supervisor.watch()
    except StopAsked:
        pass
    finally:
        supervisor.stop()


class Supervisor:
    """Everything that runs here, and the one loop that tends it."""

    def __init__(self, wishes: Wishes, folder: UpFolder) -> None:
        self._wishes = wishes
        self._folder = folder
        self._wakeup = Wakeup()
        self._ports = ExitStack()
        self._server: embedded.Server | None = None
        self._cluster: Cluster | None = None
        self._apis: list[str] = []
        self._controllers: list[Child] = []
        self._workers: list[Child] = []
        self._keepers: list[KeeperWatch] = []

    # Starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the API answers and every host is up."""
        self._warn()
        reserved = self._reserve_ports()
        self._server = embedded.start(self._folder.postgres)
        self._say(f"PostgreSQL answers on port {self._server.port}")
        self._check_stop()
        self._cluster = prepare(
            self._server.url,
            self._folder,
            hosts=self._wishes.workers,
            cpus=self._wishes.cpus,
            settings=self._wishes.settings,
        )
        self._say("the database is ready")
        for name, cpus in self._cluster.other_sizes.items():
            self._say(f"warning: {name} keeps the {cpus} cpus it was made with")
        self._start_controllers(self._cluster, reserved)
        self._start_workers(self._cluster)
        self._wait_until_ready()
        self._write_state()
        self._announce()

    def _warn(self) -> None:
        if os.geteuid() == 0:
            self._say("warning: jobs run as root here; xce up is for one person's machine")

    def _reserve_ports(self) -> list[int]:
        first = self._wishes.port
        ports = []
        for i in range(self._wishes.controllers):
            port = first + i if first else 0
            try:
                reserved = self._ports.enter_context(reserve_port(port))
            except OSError as error:
                raise UpError(
                    f"port {port} is taken: give another --port, or 0 for a free one"
                ) from error
            ports.append(port_of(reserved))
        return ports

    def _start_controllers(self, cluster: Cluster, ports: list[int]) -> None:
        for i, port in enumerate(ports, 1):
            options = ["--port", str(port), "--shared-port"]
            self._controllers.append(
                self._child(f"controller-{i}", ["controller", *options], cluster.controller_url)
            )
            self._apis.append(f"http://127.0.0.1:{port}")

    def _start_workers(self, cluster: Cluster) -> None:
        for name, url in cluster.host_urls.items():
            options = ["--run-dir", str(self._folder.host(name)), "--as-starter"]
            options += ["--api-url", self._apis[0]]
            self._workers.append(self._child(f"worker-{name}", ["worker", *options], url))
            self._keepers.append(KeeperWatch(self._folder.host(name)))

    def _child(self, name: str, arguments: list[str], url: str) -> Child:
        # -P: a folder named `app` where the user happens to be is not ours.
        command = [sys.executable, "-P", "-m", "app.admin.main", *arguments]
        command += ["--parent", str(os.getpid())]
        environment = child_environment(os.environ) | {"XCE_DATABASE_URL": url}
        child = Child(Program(name, command, environment, self._folder.log(name)))
        child.start()
        return child

    def _wait_until_ready(self) -> None:
        waits: list[tuple[str, Callable[[], bool]]] = [
            *((f"the API at {api}", lambda api=api: is_ready(api)) for api in self._apis),
            ("the hosts", self._hosts_are_up),
        ]
        give_up_at_s = time.monotonic() + READY_S
        for what, is_there in waits:
            while not is_there():
                self._wakeup.sleep(LOOK_S)
                self._check_stop()
                self._tend()
                self._check_deaths()
                if time.monotonic() > give_up_at_s:
                    raise UpError(f"{what} did not come up within {READY_S:.0f} s")
            self._say(f"{what} answers" if "API" in what else f"{what} are up")

    def _hosts_are_up(self) -> bool:
        assert self._cluster is not None
        before = self._cluster.incarnations
        with Administration.open(self._cluster.url) as administration:
            hosts = {host.name: host for host in administration.hosts()}
        return all(
            hosts[name].incarnation > before.get(name, 0)
            and hosts[name].state not in ("joining", "lost")
            for name in self._cluster.host_urls
        )

    def _check_deaths(self) -> None:
        for child in (*self._controllers, *self._workers):
            if child.deaths >= DEATHS_MAX:
                raise UpError(f"{child.program.name} keeps dying:\n{child.log_tail()}")

    def _check_stop(self) -> None:
        if self._wakeup.stopping:
            raise StopAsked

    def _announce(self) -> None:
        if self._wishes.as_json:
            print(json.dumps(self._state()), flush=True)
            return
        self._say(
            f"ready: {self._wishes.workers} hosts with {self._wishes.cpus} cpus each. Try next:\n"
            f"  export XCE_API_URL={self._apis[0]}\n"
            f"  export XCE_TOKEN_FILE={self._folder.owner_token}\n"
            "  xcecli submit --tasks 2 --max-tasks 4 -- sleep 600\n"
            "  xcecli resize request 2 JOB\n"
            "  xcecli tasks JOB\n"
            "Ctrl-C stops it all."
        )

    # Watching ---------------------------------------------------------------------------------

    def watch(self) -> None:
        """Tend the daemons until somebody asks for the end."""
        while not self._wakeup.stopping:
            waits = [c.restarts_in_s() for c in (*self._controllers, *self._workers)]
            self._wakeup.sleep(min([WATCH_S, *(wait for wait in waits if wait is not None)]))
            self._tend()
            self._write_state()

    def _tend(self) -> None:
        for child in (*self._controllers, *self._workers):
            if child.tend() and child.pid is None:
                self._say(f"{child.program.name} died; it is started again")
        if self._server is not None and not is_alive(self._server.pid):
            self._say("PostgreSQL died; it is started again")
            try:
                self._server = embedded.start(self._folder.postgres, port=self._server.port)
            except embedded.EmbeddedError as error:
                self._say(f"it does not start: {error}")

    def _state(self) -> dict[str, Any]:
        assert self._server is not None
        return {
            "api": self._apis[0] if self._apis else None,
            "apis": self._apis,
            "database_url": self._server.url,
            "token_file": str(self._folder.operator_token),
            "owner_token_file": str(self._folder.owner_token),
            "pids": {
                "controllers": [child.pid for child in self._controllers],
                "workers": [child.pid for child in self._workers],
                "postgres": self._server.pid,
                "keepers": [keeper.pid for keeper in self._keepers],
            },
        }

    def _write_state(self) -> None:
        self._folder.write_state(self._state())

    # Stopping ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Leave nothing behind: no task, daemon, keeper, server, port or temporary folder."""
        self._say("stopping")
        # First the controllers: room that a killed job gives back must not go to the next one.
        stop_all(self._controllers, DAEMON_STOP_S)
        self._end_jobs()
        stop_all(self._workers, DAEMON_STOP_S)
        self._end_keepers()
        if self._server is not None:
            embedded.stop(self._server)
        self._ports.close()
        self._folder.leave()
        self._say("stopped")

    def _end_jobs(self) -> None:
        if self._cluster is None:
            return
        until_s = time.monotonic() + TASKS_STOP_S
        try:
            with Administration.open(self._cluster.url) as administration:
                administration.ring(administration.kill_jobs_with_tasks())
                while administration.open_tasks() and time.monotonic() < until_s:
                    self._wakeup.sleep(LOOK_S)
                    for worker in self._workers:
                        worker.tend()
        except DatabaseError as error:
            self._say(f"the jobs could not be killed: {error}")

    def _end_keepers(self) -> None:
        for child, keeper in zip(self._workers, self._keepers, strict=True):
            pid = keeper.pid
            if not keeper.shut_down() and pid is not None:
                self._say(f"the keeper of {child.program.name} (process {pid}) does not end")

    def _say(self, what: str) -> None:
        print(f"xce up: {what}", file=sys.stderr, flush=True)


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a daemon inherits: nothing that names another database, API or token."""
    return {
        name: value
        for name, value in environment.items()
        if name in INHERITED or not name.startswith(NOT_INHERITED)
    }


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
