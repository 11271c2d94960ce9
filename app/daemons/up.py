"""`xce up`: a whole cluster on one machine, kept alive by one small supervisor without a loop."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.daemons.children import Child, Program
from app.daemons.keeper_watch import KeeperWatch
from app.daemons.leftovers import end_leftovers
from app.daemons.probe import is_ready
from app.daemons.reserved_port import port_of, reserve_port
from app.daemons.up_cluster import (
    Cluster,
    prepare,
    refuse_another_database,
    set_fence_back,
)
from app.daemons.up_database import Database, EmbeddedDatabase, GivenDatabase
from app.daemons.up_end import Ending
from app.daemons.up_folder import FolderInUse, UpFolder
from app.daemons.up_running import Running, say
from app.daemons.up_wishes import StopAsked, UpError, Wishes
from app.daemons.wakeup import Wakeup
from app.db.address import place_of, whole_url
from app.db.administration import Administration
from app.db.claim import Claim
from app.db.errors import Unavailable
from app.db.rights import lacking
from app.runtime.process import forbid_dumps

READY_S = 90.0
#: A daemon that dies so often before all is ready will not do better the next time.
DEATHS_MAX = 4
WATCH_S = 0.5
LOOK_S = 0.02
CLAIM_AGAIN_S = 5.0
LEFTOVER_S = 3.0
EMBEDDED = "embedded"
NOT_INHERITED = ("XCE_", "PG")
INHERITED = ("XCE_FAILPOINTS", "XCE_LOG_LEVEL")


class ClaimLost(UpError):
    """Another `xce up` serves the hosts by now."""


def main(wishes: Wishes, wakeup: Wakeup) -> None:
    """Run the cluster until SIGTERM or Ctrl-C. Raises UpError, and what the database raises."""
    forbid_dumps()
    forbid_dumps()
    try:
        if not wakeup.stopping:
            run(wishes, locked_folder(wishes.data), wakeup)
    finally:
        wakeup.ignore()


def run(wishes: Wishes, folder: UpFolder, wakeup: Wakeup) -> None:
    """Start, watch and end it."""
    running = Running()
    supervisor = Supervisor(wishes, folder, wakeup, running)
    try:
        supervisor.start()
        supervisor.watch()
    except StopAsked:
        pass
    except ClaimLost:
        Ending(wishes, folder, wakeup, running).hand_over()
        raise
    except BaseException:
        Ending(wishes, folder, wakeup, running).give_up()
        raise
    ending = Ending(wishes, folder, wakeup, running)
    if wishes.keep_s is None:
        ending.end_all()
    else:
        ending.keep_tasks(wishes.keep_s)


def locked_folder(data: Path | None) -> UpFolder:
    """The folder, which is ours alone from now on. Raises UpError."""
    try:
        folder = UpFolder(data)
        folder.lock()
    except FolderInUse as error:
        raise UpError(str(error)) from error
    except OSError as error:
        raise UpError(f"the folder {data}: {error.strerror}") from error
    return folder


class Supervisor:
    """Starts everything that runs here, and is the one loop that tends it."""

    def __init__(self, wishes: Wishes, folder: UpFolder, wakeup: Wakeup, running: Running) -> None:
        self._wishes = wishes
        self._folder = folder
        self._wakeup = wakeup
        self._running = running
        self._claim_again_at_s = 0.0

    # Starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the API answers and every host is up.

        Raises UpError, StopAsked, and what the database raises.
        """
        self._check_stop()
        if os.geteuid() == 0:
            say("warning: jobs run as root here; xce up is for one person's machine")
        self._folder.forget_state()
        for pid in end_leftovers(self._folder.mark, LEFTOVER_S):
            say(f"warning: process {pid} of an earlier start does not end")
        ports = self._reserve_ports()
        self._check_stop()
        database = self._running.database = self._open_database()
        self._check_stop()
        self._claim(database.url)
        cluster = prepare(database.url, self._folder, self._wishes, say)
        self._running.cluster = cluster
        say("the database is ready")
        self._start_controllers(cluster, ports)
        self._start_workers(cluster)
        self._wait_until_ready()
        set_fence_back(cluster.url, self._folder, self._wishes)
        self._write_state()
        self._announce()

    def _reserve_ports(self) -> list[int]:
        kept = self._folder.kept_ports()
        ports = []
        for i in range(self._wishes.controllers):
            if self._wishes.port:
                ports.append(self._reserve(self._wishes.port + i))
            else:
                ports.append(self._reserve(kept[i] if i < len(kept) else 0, is_wish=False))
        self._folder.keep_ports(ports)
        return ports

    def _reserve(self, port: int, *, is_wish: bool = True) -> int:
        try:
            return port_of(self._running.ports.enter_context(reserve_port(port)))
        except OSError as error:
            if is_wish:
                raise UpError(
                    f"port {port} is taken: give another --port, or 0 for a free one"
                ) from error
            return self._reserve(0)

    def _open_database(self) -> Database:
        if self._wishes.database_url is None:
            refuse_another_database(self._folder, EMBEDDED)
            server = EmbeddedDatabase.start(self._folder.postgres, self._check_stop)
            say(f"PostgreSQL runs as process {server.pid}")
            return server
        url = whole_url(self._wishes.database_url)
        if faults := lacking(url, self._wishes.hosts):
            raise UpError("xce up cannot use this database: " + "; ".join(faults))
        refuse_another_database(self._folder, place_of(url))
        return GivenDatabase(url)

    def _claim(self, url: str) -> None:
        claim = Claim(url)
        holder = claim.take()
        if holder is not None:
            raise UpError(
                f"another xce up serves this database ({holder}), and the hosts of both would have "
                "the same names: stop it first, or give another database"
            )
        self._running.claim = claim

    def _start_controllers(self, cluster: Cluster, ports: list[int]) -> None:
        for i, port in enumerate(ports, 1):
            options = ["--port", str(port), "--shared-port"]
            self._running.controllers.append(
                self._child(f"controller-{i}", ["controller", *options], cluster.controller_url)
            )
            self._running.apis.append(f"http://127.0.0.1:{port}")

    def _start_workers(self, cluster: Cluster) -> None:
        for name, url in cluster.host_urls.items():
            options = ["--run-dir", str(self._folder.host(name)), "--as-starter"]
            options += ["--api-url", self._running.apis[0]]
            self._running.workers.append(self._child(f"worker-{name}", ["worker", *options], url))
            self._running.keepers[name] = KeeperWatch(self._folder.host(name))

    def _child(self, name: str, arguments: list[str], url: str) -> Child:
        # -P: a folder named `app` where the user happens to be is not ours.
        command = [sys.executable, "-P", "-m", "app.admin.main", *arguments]
        command += ["--parent", str(os.getpid()), *self._folder.mark.split(" ", 1)]
        environment = child_environment(os.environ) | {"XCE_DATABASE_URL": url}
        child = Child(Program(name, command, environment, self._folder.log(name)))
        child.start()
        return child

    def _wait_until_ready(self) -> None:
        waits: list[tuple[str, Callable[[], bool]]] = [
            *((f"the API at {api}", lambda api=api: is_ready(api)) for api in self._running.apis),
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
            say(f"{what} answers" if "API" in what else f"{what} are up")

    def _hosts_are_up(self) -> bool:
        cluster = self._running.cluster
        assert cluster is not None
        with Administration.open(cluster.url) as administration:
            hosts = {host.name: host for host in administration.hosts()}
        return all(
            hosts[name].incarnation > cluster.incarnations.get(name, 0)
            and hosts[name].state not in ("joining", "lost")
            for name in cluster.host_urls
        )

    def _check_deaths(self) -> None:
        for child in self._running.children:
            if child.deaths >= DEATHS_MAX:
                raise UpError(f"{child.program.name} keeps dying:\n{child.log_tail()}")

    def _check_stop(self) -> None:
        if self._wakeup.stopping:
            raise StopAsked

    def _announce(self) -> None:
        if self._wishes.as_json:
            print(json.dumps(self._state()), flush=True)
            return
        stays = "the daemons; the tasks stay" if self._wishes.keep_s is not None else "it all"
        say(
            f"ready: {self._wishes.workers} hosts with {self._wishes.cpus} cpus each. Try next:\n"
            f"  export XCE_API_URL={self._running.apis[0]}\n"
            f"  export XCE_TOKEN_FILE={self._folder.owner_token}\n"
            "  xcecli submit --tasks 2 --max-tasks 4 -- sleep 600\n"
            "  xcecli resize request 2 JOB\n"
            "  xcecli tasks JOB\n"
            f"Ctrl-C stops {stays}."
        )

    # Watching ---------------------------------------------------------------------------------

    def watch(self) -> None:
        """Tend the daemons until somebody asks for the end. Raises StopAsked, ClaimLost."""
        while not self._wakeup.stopping:
            waits = [child.restarts_in_s() for child in self._running.children]
            self._wakeup.sleep(min([WATCH_S, *(wait for wait in waits if wait is not None)]))
            self._tend()
            self._hold_claim()
            self._write_state()

    def _tend(self) -> None:
        for child in self._running.children:
            if child.tend() and child.pid is None:
                say(f"{child.program.name} died; it is started again")
        if self._running.database is not None:
            self._running.database.tend(say)

    def _hold_claim(self) -> None:
        """The server may have been away: take the hosts again before anybody else does."""
        claim = self._running.claim
        if claim is None or claim.is_held() or time.monotonic() < self._claim_again_at_s:
            return
        try:
            holder = claim.take()
        except Unavailable:
            self._claim_again_at_s = time.monotonic() + CLAIM_AGAIN_S
            return
        if holder is not None:
            raise ClaimLost(f"while the database was away another xce up took it over ({holder})")

    def _state(self) -> dict[str, Any]:
        running = self._running
        assert running.database is not None
        return {
            "api": running.apis[0] if running.apis else None,
            "apis": running.apis,
            "database_url": running.database.url,
            "token_file": str(self._folder.operator_token),
            "owner_token_file": str(self._folder.owner_token),
            "pids": {
                "controllers": [child.pid for child in running.controllers],
                "workers": [child.pid for child in running.workers],
                "postgres": running.database.pid,
                "keepers": [keeper.pid for keeper in running.keepers.values()],
            },
        }

    def _write_state(self) -> None:
        self._folder.write_state(self._state())


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a daemon inherits: nothing that names another database, API or token."""
    return {
        name: value
        for name, value in environment.items()
        if name in INHERITED or not name.startswith(NOT_INHERITED)
    }
