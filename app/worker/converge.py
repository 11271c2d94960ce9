"""The worker's loop: fetch what should run, make it so, report what became of it."""

from app.runtime.clock import elapsed_s
from app.runtime.failpoints import die_at
from app.runtime.logs import logger
from app.runtime.stopping import wait_any
from app.worker.launch import Launcher, LaunchRefused
from app.worker.link import Exchange, Fetched, Registered
from app.worker.observe import Processes
from app.worker.reconcile import (
    Action,
    Forget,
    Key,
    Order,
    Report,
    Start,
    Stop,
    is_clear,
    open_rows,
    reconcile,
)
from app.worker.tasks import Tasks
from app.worker.written import KeptSizes, Written

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
AFTER_CLAIM_BEFORE_SPAWN = "after_claim_before_spawn"
AFTER_SPAWN_BEFORE_REPORT = "after_spawn_before_report"


class Converger:
    """Drives one host towards what the database wants; holds nothing that a restart would miss.

    It alone sends heartbeats, inside its turns, so that a hung worker falls silent (PROTOCOL 7).
    """

    def __init__(self, exchange: Exchange, processes: Processes, launcher: Launcher) -> None:
        #: What the tasks of this host write to, as of the last fetch.
        self.written = Written()
        self._exchange = exchange
        self._processes = processes
        self._launcher = launcher
        self._tasks = Tasks()
        self._terms: Registered | None = None
        self._rows: frozenset[Key] = frozenset()
        self._fetched = 0
        self._has_fetched = False
        self._knows_all = False
        self._told_clear = False
        self._is_cleared = False
        self._settings = Fetched(stale=True)
        self._due_at_s = 0.0
        self._retry_s = RETRY_FIRST_S

    @property
    def terms(self) -> Registered | None:
        """What the current incarnation was given; None while there is none."""
        return self._terms

    def kept_sizes(self) -> KeptSizes:
        """How much of each output file is kept, as the database said last."""
        return KeptSizes(self._settings.output_max_mib, self._settings.output_keep_mib)

    def keep_days(self) -> float:
        """How long output is kept, as the database said last."""
        return self._settings.output_keep_days

    def open_jobs(self) -> set[int]:
        """The jobs that have a task or a process here."""
        return {key.job_id for key in self._rows | self._processes.observed.keys()}

    async def run(self) -> None:
        """Turn for ever; the link or the keeper being away only costs time."""
        while True:
            try:
                await self._turn()
                self._retry_s = RETRY_FIRST_S
                await self._rest()
            except ConnectionError as error:
                logger().warning("database_away", detail=str(error), retry_s=self._retry_s)
                self._due_at_s = 0.0
                await wait_any(self._exchange.bell, timeout_s=self._retry_s)
                self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    async def _rest(self) -> None:
        left_s = self._due_at_s - elapsed_s()
        if left_s > 0:
            await wait_any(self._exchange.bell, self._processes.news, timeout_s=left_s)

    async def _turn(self) -> None:
        # Without a keeper nothing could be done, and silence is the truth about this host. Its
        # supervisor starts another at once, and that one's list is news.
        while not self._processes.are_known:
            self._processes.news.clear()
            await self._processes.news.wait()
        self._processes.news.clear()
        if self._terms is None:
            await self._register()
        if self._exchange.bell.is_set() or elapsed_s() >= self._due_at_s or self._has_cleared():
            await self._fetch()
        await self._settle()

    async def _register(self) -> None:
        observed = self._processes.observed
        live = [key for key, process in sorted(observed.items()) if process.is_alive]
        terms = await self._exchange.register(self._processes.boot_id, live)
        logger().info("registered", host=terms.host, incarnation=terms.incarnation, live=len(live))
        self._tasks.forget_all()
        self._rows = terms.kept
        self._is_cleared = False
        self._terms = terms
        self._has_fetched = False
        self._knows_all = False
        self._due_at_s = 0.0

    async def _fetch(self) -> None:
        assert self._terms is not None
        self._exchange.bell.clear()
        sent_at_s = elapsed_s()
        self._told_clear = is_clear(self._rows, self._processes.observed)
        self._fetched += 1
        self._processes.fetched = self._fetched
        answer = await self._exchange.fetch(
            self._terms.incarnation,
            is_clear=self._told_clear,
            fence_s=self._processes.fence_s,
            is_full=not self._knows_all,
        )
        if answer.stale:
            self._end_incarnation()
        else:
            self._take(answer, sent_at_s=sent_at_s)

    def _take(self, answer: Fetched, *, sent_at_s: float) -> None:
        assert self._terms is not None
        die_at(AFTER_CLAIM_BEFORE_SPAWN)
        self._has_fetched = True
        self._settings = answer
        # One that was left out followed a heartbeat by less than a fifth of the interval.
        share = 1.0 if answer.is_heartbeat else 0.8
        self._due_at_s = sent_at_s + min(share * answer.heartbeat_s, answer.poll_s)
        if answer.is_paused:
            self._rows = frozenset()
            # What the ids of a restored database name is told anew.
            self._knows_all = False
        else:
            self._learn(answer)
        # Before any start: the keeper refuses to exec behind a fence that has run out.
        if answer.is_heartbeat:
            self._processes.renew_fence(answer.fence_s, sent_at_s=sent_at_s)

    def _learn(self, answer: Fetched) -> None:
        assert self._terms is not None
        running = self._tasks.recalled(answer.running)
        self._knows_all = running is not None
        if running is None:
            logger().warning("unknown_task_runs", known=len(self._tasks.desired))
            self._due_at_s = 0.0
            return
        tasks = (*answer.tasks, *running)
        self._is_cleared |= self._told_clear
        self._tasks.learn(tasks)
        self.written.learn(tasks, host=self._terms.host)
        self._rows = open_rows(self._tasks.desired)

    def _end_incarnation(self) -> None:
        logger().warning("incarnation_over")
        self._terms = None
        self._due_at_s = 0.0
        if not self._has_fetched:
            # Somebody else registers as this host all the time: do not race with it.
            raise ConnectionError("the new incarnation was over at once")

    def _has_cleared(self) -> bool:
        """The last stray has ended since the database was told that there is one."""
        return not self._told_clear and is_clear(self._rows, self._processes.observed)

    async def _settle(self) -> None:
        """Act and report until there is nothing left to do now."""
        done: list[Order] = []
        said: list[Report] = []
        while self._terms is not None and not self._settings.is_paused:
            actions = self._actions()
            orders = [action for action in actions if not isinstance(action, Report)]
            if orders and orders != done:
                self._carry_out(orders)
                done = orders
                continue
            reports = [action for action in actions if isinstance(action, Report)]
            # What carrying out did not change is left to the next turn, lest this one never ends.
            if not reports or reports == said:
                return
            await self._report(reports)
            said = reports

    def _actions(self) -> list[Action]:
        return reconcile(
            self._tasks.desired,
            self._processes.observed,
            fetched=self._fetched,
            now_s=elapsed_s(),
            may_start=self._is_cleared,
        )

    def _carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Start():
                    self._start(order)
                case Stop():
                    self._processes.stop(order.key, grace_s=order.grace_s)
                case Forget():
                    self._processes.forget(order.key)

    def _start(self, order: Start) -> None:
        try:
            prepared = self._launcher.prepare(order.task.key, order.launch)
        except (LaunchRefused, OSError, ValueError) as refusal:
            # Whatever one task's terms make of this host, the others and the heartbeat go on.
            self._processes.note_refusal(order.task.key, str(refusal))
            return
        self._processes.start(order.task, prepared)

    async def _report(self, reports: list[Report]) -> None:
        assert self._terms is not None
        die_at(AFTER_SPAWN_BEFORE_REPORT)
        answer = await self._exchange.report(self._terms.incarnation, reports)
        if answer.stale:
            self._end_incarnation()
        else:
            self._tasks.acknowledge(reports)
            self._rows = open_rows(self._tasks.desired)
