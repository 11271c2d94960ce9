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
from app.daemons.up_database import EmbeddedDatabase, GivenDatabase, UpDatabase
from app.daemons.up_folder import FolderInUse, UpFolder
from app.daemons.up_keeping import FENCE, Keeping
from app.daemons.wakeup import Wakeup
from app.db.administration import Administration
from app.db.errors import DatabaseError, Fault
from app.db.given import DatabaseRefused
from app.runtime.process import forbid_dumps

READY_S = 90.0
#: A daemon that dies so often before all is ready will not do better the next time.
DEATHS_MAX = 4
WATCH_S = 0.5
LOOK_S = 0.02
DAEMON_STOP_S = 3.0
#: Tasks get at most 10 s of grace; a little more is for their end to be recorded.
TASKS_STOP_S = 10.5
KEEP_STOP_S = 6.0
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
    database_url: str | None = None
    #: Leave the tasks alone when it stops, for so long.
    keep_s: float | None = None
    as_json: bool = False


def main(wishes: Wishes) -> None:
    """Run the cluster until SIGTERM or Ctrl-C. Raises UpError, and what the database raises."""
    forbid_dumps()
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
        self._keeping = Keeping(folder.root)
        self._database: UpDatabase | None = None
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
        self._database = self._open_database()
        self._say("PostgreSQL answers")
        self._check_stop()
        self._cluster = self._prepare(self._database.url)
        self._say("the database is ready")
        for name, cpus in self._cluster.other_sizes.items():
            self._say(f"warning: {name} keeps the {cpus} cpus it was made with")
        self._start_controllers(self._cluster, reserved)
        self._start_workers(self._cluster)
        self._wait_until_ready()
        self._write_state()
        self._announce()

    def _open_database(self) -> UpDatabase:
        url = self._wishes.database_url
        try:
            return EmbeddedDatabase(self._folder.postgres) if url is None else GivenDatabase(url)
        except DatabaseRefused as error:
            raise UpError(str(error)) from error

    def _prepare(self, url: str) -> Cluster:
        try:
            cluster = prepare(
                url,
                self._folder,
                hosts=self._wishes.workers,
                cpus=self._wishes.cpus,
                settings=self._wishes.settings,
            )
            if FENCE not in self._wishes.settings:
                with Administration.open(url) as administration:
                    self._keeping.set_back(administration)
        except Fault as error:
            raise UpError(
                f"the database refuses what has to be made ({error}); its role has to own the "
                "database and have the attribute createrole, and the admin option on the roles "
                "xce_controller and xce_worker where somebody else has made them"
            ) from error
        return cluster

    def _warn(self) -> None:
        if os.geteuid() == 0:
            self._say("warning: jobs run as root here; xce up is for one person's machine")

    def _reserve_ports(self) -> list[int]:
        first = self._wishes.port
        last = self._folder.last_ports()
        ports = []
        for i in range(self._wishes.controllers):
            wanted = first + i if first else 0
            ports.append(self._reserve(wanted or (last[i] if i < len(last) else 0), wanted))
        self._folder.keep_ports(ports)
        return ports

    def _reserve(self, port: int, wanted: int) -> int:
        """The port itself; where any will do another one if it is taken meanwhile."""
        try:
            return port_of(self._ports.enter_context(reserve_port(port)))
        except OSError as error:
            if port != wanted:
                return self._reserve(wanted, wanted)
            raise UpError(
                f"port {port} is taken: give another --port, or 0 for a free one"
            ) from error

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
        if self._database is not None:
            self._database.tend(self._say)

    def _state(self) -> dict[str, Any]:
        assert self._database is not None
        return {
            "api": self._apis[0] if self._apis else None,
            "apis": self._apis,
            "database_url": self._database.url,
            "token_file": str(self._folder.operator_token),
            "owner_token_file": str(self._folder.owner_token),
            "pids": {
                "controllers": [child.pid for child in self._controllers],
                "workers": [child.pid for child in self._workers],
                "postgres": self._database.pid,
                "keepers": [keeper.pid for keeper in self._keepers],
            },
        }

    def _write_state(self) -> None:
        self._folder.write_state(self._state())

    # Stopping ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Leave nothing behind: no task, daemon, keeper, server, port or temporary folder.

        With `--keep-tasks` keepers and tasks stay, as long as their fence is open.
        """
        self._say("stopping")
        keeps = self._wishes.keep_s is not None and self._keep_tasks(self._wishes.keep_s)
        # First the controllers: room that a killed job gives back must not go to the next one.
        stop_all(self._controllers, DAEMON_STOP_S)
        if not keeps:
            self._end_jobs()
        stop_all(self._workers, DAEMON_STOP_S)
        if not keeps:
            self._end_keepers()
        if self._database is not None:
            self._database.stop()
        self._ports.close()
        self._folder.leave()
        self._say("stopped")

    def _keep_tasks(self, keep_s: float) -> bool:
        """Whether the tasks may be left alone; says which keepers did not confirm."""
        if self._cluster is None:
            return False
        try:
            with Administration.open(self._cluster.url) as administration:
                late = self._keeping.lengthen(
                    administration,
                    self._keepers,
                    keep_s=keep_s,
                    until_s=time.monotonic() + KEEP_STOP_S,
                    sleep=self._wakeup.sleep,
                )
        except DatabaseError as error:
            self._say(f"the fences could not be lengthened, so the jobs are killed: {error}")
            return False
        for place in late:
            self._say(f"{self._workers[place].program.name} did not confirm the longer fence")
        return True

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
