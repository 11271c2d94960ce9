"""What this host's keeper holds, kept current, and the orders given to it."""

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from app.runtime.clock import elapsed_s
from app.runtime.logs import logger
from app.runtime.stopping import wait_any
from app.worker.keeper_client import (
    ExitEvidence,
    KeeperClient,
    KeeperEvent,
    KeeperLostError,
    KeeperRefusedError,
    KeptTask,
    SpawnFailedError,
    TaskExistsError,
    TaskLimits,
    TaskSpec,
)
from app.worker.launch import Prepared
from app.worker.reconcile import Desired, Key, Observed

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
#: A fence that closes within this time is renewed before anything is started behind it.
START_MARGIN_S = 5.0
BY_FENCE = "stopped by the fence of its host"
OUT_OF_MEMORY = "out_of_memory"


class Processes:
    """The tasks of this host as its keeper has them; `news` is set whenever that changed.

    Orders are sent in the order given and not waited for, so that a child stuck before its exec
    never holds up a heartbeat. What they came to is news; after the death of a keeper its
    successor's list is.
    """

    def __init__(self, run_dir: Path) -> None:
        self.news = asyncio.Event()
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        #: The number of the last fetch that was sent; the converger's to set.
        self.fetched = 0
        self._run_dir = run_dir
        self._client: KeeperClient | None = None
        self._are_known = False
        self._outdated = asyncio.Event()
        self._is_listing = False
        self._kept: dict[Key, Observed] = {}
        # Ends that no record tells of: the keeper was never asked, or refused without a trace.
        self._refusals: dict[Key, Observed] = {}
        self._starting: set[Key] = set()
        self._safe_until_s = 0.0
        #: What the keeper is known to count its fence with; None where nobody knows.
        self.fence_s: float | None = None
        self._orders: set[asyncio.Task[None]] = set()

    @property
    def are_known(self) -> bool:
        """Whether the list is whole; not so while there is no keeper."""
        return self._are_known

    @property
    def observed(self) -> Mapping[Key, Observed]:
        return {**self._refusals, **self._kept}

    def find(self, key: Key) -> Observed | None:
        """One task as it is observed."""
        return self._kept.get(key) or self._refusals.get(key)

    # The keeper's life ----------------------------------------------------------------------

    async def run(self) -> None:
        """Have a keeper for ever: find the one that serves the folder, or start another."""
        retry_s = RETRY_FIRST_S
        while True:
            try:
                self._client = await KeeperClient.connect_or_start(self._run_dir, self._hear)
                retry_s = RETRY_FIRST_S
                await self._follow(self._client)
            except KeeperLostError as error:
                logger().warning("keeper_lost", detail=str(error))
            except KeeperRefusedError as error:
                logger().error("keeper_ails", detail=str(error), retry_s=retry_s)
                await self._hang_up()
            except (OSError, TimeoutError) as error:
                logger().error("keeper_not_started", detail=str(error), retry_s=retry_s)
            # At once after a loss; only a keeper that cannot be started or asked is waited for.
            was_connected = self._client is not None
            self._lose_keeper()
            if not was_connected:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_MAX_S)

    def _lose_keeper(self) -> None:
        self._client = None
        self._are_known = False
        self._safe_until_s = 0.0
        self.fence_s = None
        # Who was told to stop is not known to a successor: it will be told again.
        self._kept = {key: replace(kept, stop_by_s=None) for key, kept in self._kept.items()}

    async def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def close(self) -> None:
        """Hang up; keeper and tasks go on."""
        for order in self._orders:
            order.cancel()
        if self._client is not None:
            self._client.close()

    async def _follow(self, client: KeeperClient) -> None:
        while not client.lost.is_set():
            self._outdated.clear()
            self._is_listing = True
            view = await client.list()
            self._is_listing = False
            self._take(view.tasks)
            await wait_any(self._outdated, client.lost)
        raise KeeperLostError("its connection has ended")

    def _hear(self, event: KeeperEvent) -> None:
        if event.event == "started":
            # Told by the answer to its order already.
            return
        if event.task is None or self._is_listing or not self._are_known:
            # A list that is on its way may be older than the event.
            self._outdated.set()
        else:
            self._take_one(event.task)
            self.news.set()

    def _take(self, tasks: list[KeptTask]) -> None:
        listed = {Key(*task.key): task for task in tasks}
        # The list may be older than a start that is on its way.
        fresh = {key: self._kept[key] for key in self._starting & self._kept.keys()}
        before, self._kept = self._kept, fresh
        for key, task in listed.items():
            self._take_one(task, before.get(key))
        self._are_known = True
        self.news.set()

    def _take_one(self, task: KeptTask, before: Observed | None = None) -> None:
        key = Key(*task.key)
        before = before or self._kept.get(key)
        self._kept[key] = observed_from(
            task,
            stop_by_s=before.stop_by_s if before else None,
            seen=before.seen if before else self.fetched,
        )
        self._refusals.pop(key, None)

    # Orders ---------------------------------------------------------------------------------

    def renew_fence(self, fence_s: float, *, sent_at_s: float) -> None:
        """Count the fence from the sending of an exchange that the database answered."""
        safe_until_s = sent_at_s + fence_s - START_MARGIN_S
        if elapsed_s() > self._safe_until_s or safe_until_s < self._safe_until_s:
            self._renew(fence_s, sent_at_s)
        else:
            # What the same answer made us start goes first: the fence of the last answer is open
            # as well. Called soon means after those starts are sent.
            asyncio.get_running_loop().call_soon(self._renew, fence_s, sent_at_s)
        self._safe_until_s = safe_until_s

    def _renew(self, fence_s: float, sent_at_s: float) -> None:
        if self._client is not None:
            self._order(self._ask(self._count_with(self._client, fence_s, sent_at_s)))

    async def _count_with(self, client: KeeperClient, fence_s: float, sent_at_s: float) -> None:
        if (await client.renew(fence_s, round(sent_at_s * 1e9))).renewed:
            self.fence_s = fence_s

    def start(self, task: Desired, prepared: Prepared) -> None:
        """Fork it; from now on it is observed, whatever comes of it."""
        if self._client is None:
            return
        key = task.key
        self._kept[key] = Observed(key, "forked", grace_s=task.grace_s, seen=self.fetched)
        self._starting.add(key)
        self._order(self._spawn(self._client, key, spec_of(task, prepared)))

    def stop(self, key: Key, *, grace_s: float) -> None:
        """TERM now, KILL after the grace."""
        if self._client is not None and key in self._kept:
            self._kept[key] = replace(self._kept[key], stop_by_s=elapsed_s() + grace_s)
            self._order(self._ask(self._client.stop(*key, grace_s)))

    def forget(self, key: Key) -> None:
        """Drop what is known of an ended task."""
        self._refusals.pop(key, None)
        if self._client is not None and self._kept.pop(key, None) is not None:
            self._order(self._ask(self._client.forget(*key)))

    def note_refusal(self, key: Key, reason: str) -> None:
        """It will not be started here; from now on it is observed as ended."""
        self._refusals[key] = Observed(key, "ended", reason=reason, seen=self.fetched)
        self.news.set()

    def _order(self, coroutine: Coroutine[Any, Any, None]) -> None:
        order = asyncio.create_task(coroutine)
        self._orders.add(order)
        order.add_done_callback(self._orders.discard)

    async def _spawn(self, client: KeeperClient, key: Key, spec: TaskSpec) -> None:
        try:
            await client.spawn(spec)
            self._note_exec(key)
        except (TaskExistsError, SpawnFailedError) as error:
            self._fail(key, str(error).removeprefix("failed: "))
        except KeeperRefusedError as error:
            self._fail(key, str(error))
        except KeeperLostError:
            # Whether it got its record only the next keeper can say.
            self._starting.discard(key)

    def _note_exec(self, key: Key) -> None:
        self._starting.discard(key)
        before = self._kept.get(key)
        if before is not None and before.phase == "forked":
            self._kept[key] = replace(before, phase="live", execed=True)
        self.news.set()

    def _fail(self, key: Key, reason: str) -> None:
        self._starting.discard(key)
        # Counts only where the keeper's list has no record of it, which tells more.
        self._refusals[key] = Observed(key, "ended", reason=reason, seen=self.fetched)
        self._outdated.set()

    async def _ask(self, call: Coroutine[Any, Any, object]) -> None:
        try:
            await call
        except KeeperRefusedError as error:
            logger().warning("keeper_refused", detail=str(error))
            self._outdated.set()
        except KeeperLostError:
            # Its supervisor notices by itself, and the orders follow anew from the next list.
            return


def spec_of(task: Desired, prepared: Prepared) -> TaskSpec:
    """The keeper's view of a start."""
    run_as = prepared.run_as
    return TaskSpec(
        job_id=task.job_id,
        attempt=task.attempt,
        index=task.index,
        argv=list(prepared.argv),
        env=prepared.env,
        cwd=prepared.cwd,
        fence=task.fence,
        grace_s=task.grace_s,
        stdout=prepared.stdout,
        stderr=prepared.stderr,
        uid=run_as.uid if run_as.is_other else None,
        gid=run_as.gid if run_as.is_other else None,
        groups=list(run_as.groups),
        limits=TaskLimits(cpus=prepared.cpus_max, mem_mib=prepared.mem_mib_max),
    )


def observed_from(task: KeptTask, *, stop_by_s: float | None, seen: int) -> Observed:
    """A task of the keeper's list; what it says of the end is evidence, not an opinion."""
    key = Key(*task.key)
    if task.exit is not None:
        return _ended(key, task.exit, seen)
    has_execed = task.state != "starting" and task.exec_at_monotonic_ns is not None
    return Observed(
        key,
        "forked" if task.state == "starting" else "live",
        execed=has_execed,
        grace_s=task.grace_s,
        stop_by_s=stop_by_s,
        seen=seen,
    )


def _ended(key: Key, evidence: ExitEvidence, seen: int) -> Observed:
    return Observed(
        key,
        "lost" if evidence.lost else "ended",
        execed=evidence.execed,
        exit_code=evidence.exit_code,
        signal=evidence.signal,
        reason=_reason(evidence),
        cpu_used_us=evidence.cpu_used_us,
        mem_peak_mib=evidence.mem_peak_mib,
        by_fence=evidence.killed_by_fence,
        seen=seen,
    )


def _reason(evidence: ExitEvidence) -> str | None:
    if evidence.failure is not None:
        return f"{evidence.failure.stage}: {evidence.failure.detail}"
    if evidence.out_of_memory:
        return OUT_OF_MEMORY
    return BY_FENCE if evidence.killed_by_fence else None
