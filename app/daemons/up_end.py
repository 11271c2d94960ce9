"""How `xce up` ends: within 15 s, whatever the start had come to, and in one order."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from app.daemons.children import stop_all
from app.daemons.keeper_watch import KeeperWatch
from app.daemons.leftovers import end_leftovers
from app.daemons.up_cluster import has_tasks
from app.daemons.up_database import EmbeddedDatabase
from app.daemons.up_folder import KeptFence, UpFolder
from app.daemons.up_running import Running, say
from app.daemons.up_wishes import Wishes
from app.daemons.wakeup import Wakeup
from app.db.administration import Administration, Refused
from app.db.embedded import EmbeddedError
from app.db.errors import DatabaseError

LOOK_S = 0.02
RING_AGAIN_S = 0.25
GRACE_MAX_S = 10.0
#: Each counted from the beginning of the end; what is not over by then is cut off.
CONTROLLERS_BY_S = 2.5
#: The last KILL comes at 10.2 s at most; a little more is for the ends to be recorded.
KILLED_BY_S = 10.2
TASKS_BY_S = 10.8
FENCES_BY_S = 9.0
WORKERS_S = 1.5
KEEPERS_BY_S = 13.0
DATABASE_BY_S = 13.5
LEAST_S = 0.3


class Ending:
    """One end. What fails on the way is said, and the rest ends all the same."""

    def __init__(self, wishes: Wishes, folder: UpFolder, wakeup: Wakeup, running: Running) -> None:
        self._wishes = wishes
        self._folder = folder
        self._wakeup = wakeup
        self._running = running
        self._started_at_s = time.monotonic()

    def end_all(self) -> None:
        """Leave nothing behind: no task, daemon, keeper, server, port or temporary folder."""
        say("stopping")
        self._stop_controllers()
        self._find_database()
        with self._saying("the jobs could not be killed"):
            self._end_jobs()
        self._stop_workers()
        self._end_keepers()
        self._leave()
        say("stopped")

    def keep_tasks(self, keep_s: float) -> None:
        """Leave keepers and tasks alive, for so long, and nothing else."""
        say("stopping; the tasks stay")
        self._stop_controllers()
        self._find_database()
        with self._saying("the fence could not be lengthened"):
            self._lengthen_fence(keep_s)
        self._stop_workers()
        self._leave()
        say("stopped")

    def give_up(self) -> None:
        """After a start that failed: end what it started. Tasks it found alive stay as they are."""
        if self._folder.is_temporary or not has_tasks(self._folder):
            self.end_all()
            return
        self._stop_controllers()
        self._stop_workers()
        self._leave()
        say("the tasks of an earlier start were left alone: they live until their fence")

    def hand_over(self) -> None:
        """Somebody else serves the hosts by now: end what runs here, and touch no job."""
        self._stop_controllers()
        self._stop_workers()
        self._end_keepers()
        self._leave()

    # Steps ------------------------------------------------------------------------------------

    def _stop_controllers(self) -> None:
        # First of all: room that a killed job gives back must not go to the next one.
        stop_all(self._running.controllers, self._left_s(CONTROLLERS_BY_S))

    def _find_database(self) -> None:
        """The server that a killed `xce up` left, if this one was stopped before it looked."""
        if self._running.database is None and self._wishes.database_url is None:
            self._running.database = EmbeddedDatabase.found(self._folder.postgres)

    def _end_jobs(self) -> None:
        running = self._running
        if running.database is None:
            return
        # Without one of its own this start may have been before the schema, or the claim.
        hosts = list(running.keepers) or self._folder.host_names()
        if running.cluster is None and not has_tasks(self._folder):
            return
        patience_s = self._left_s(TASKS_BY_S)
        with Administration.open(running.database.url, patience_s=patience_s) as administration:
            grace_s = min(GRACE_MAX_S, self._left_s(KILLED_BY_S))
            administration.ring(administration.kill_jobs_on(hosts, grace_s=grace_s))
            while (
                running.workers
                and administration.open_tasks_on(hosts)
                and self._left_s(TASKS_BY_S, least_s=0) > 0
            ):
                self._wait()

    def _lengthen_fence(self, keep_s: float) -> None:
        running = self._running
        if running.database is None or running.cluster is None:
            return
        patience_s = self._left_s(FENCES_BY_S)
        with Administration.open(running.database.url, patience_s=patience_s) as administration:
            now_s = administration.settings()["fence_s"]
            keep_s = max(keep_s, now_s)
            kept = self._folder.kept_fence()
            # Written first: who starts after a crash in between has something to set back.
            before_s = kept.before_s if kept is not None else now_s
            self._folder.keep_fence(KeptFence(before_s, keep_s))
            administration.write_settings({"fence_s": keep_s})
            late = self._wait_for_fences(administration, keep_s)
        for name in late:
            say(f"{name} did not confirm the longer fence: its tasks may end before")

    def _wait_for_fences(self, administration: Administration, keep_s: float) -> list[str]:
        """The hosts whose keepers did not say in time that they count with it."""
        late = [name for name, keeper in self._running.keepers.items() if keeper.pid is not None]
        ring_at_s = 0.0
        while late and self._running.workers and self._left_s(FENCES_BY_S, least_s=0) > 0:
            if time.monotonic() >= ring_at_s:
                administration.ring(administration.host_channels(late))
                ring_at_s = time.monotonic() + RING_AGAIN_S
            self._wait()
            late = [n for n in late if not has_fence(self._running.keepers[n], keep_s)]
        return late

    def _wait(self) -> None:
        self._wakeup.sleep(LOOK_S)
        for worker in self._running.workers:
            worker.tend()

    def _stop_workers(self) -> None:
        stop_all(self._running.workers, WORKERS_S)
        for pid in end_leftovers(self._folder.mark, LEAST_S):
            say(f"process {pid} of an earlier start does not end")

    def _end_keepers(self) -> None:
        for name in self._folder.host_names():
            keeper = KeeperWatch(self._folder.host(name))
            pid = keeper.pid
            # Whose worker could not stop them in order gets the grace here.
            grace_s = 0.0 if self._running.workers else self._left_s(KILLED_BY_S, least_s=0)
            patience_s = self._left_s(KEEPERS_BY_S) - min(grace_s, self._left_s(KEEPERS_BY_S))
            if pid and not keeper.shut_down(grace_s=grace_s, patience_s=max(LEAST_S, patience_s)):
                say(f"the keeper of {name} (process {pid}) does not end")

    def _leave(self) -> None:
        """Let go of the database, the ports and the folder."""
        if self._running.claim is not None:
            self._running.claim.close()
        if self._running.database is not None:
            with self._saying("PostgreSQL does not stop"):
                self._running.database.stop(self._left_s(DATABASE_BY_S))
        self._running.ports.close()
        self._folder.leave()

    def _left_s(self, by_s: float, *, least_s: float = LEAST_S) -> float:
        return max(least_s, self._started_at_s + by_s - time.monotonic())

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DatabaseError, EmbeddedError, Refused, OSError) as error:
            say(f"{what}: {error}")


def has_fence(keeper: KeeperWatch, keep_s: float) -> bool:
    try:
        # In nanoseconds on its side: a setting's last digits may be gone.
        return keeper.fence_s() > keep_s - 0.001
    except OSError:
        return False
