"""The tasks this host knows, each driven by a machine of the task's lifecycle."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace
from transitions import MachineError

from app.runtime.logs import logger
from app.worker.reconcile import Desired, Key, Report
from statemachines import TASK
from statemachines.machine import machine

#: The edge by which a known task gets into the state that the database says it is in.
EVENT_INTO = {"running": "up", "stopping": "stop"}


class KnownTask:
    """What the machine moves: a task as the database wants it."""

    state: str
    trigger: Any

    def __init__(self, desired: Desired) -> None:
        self.desired = desired


class Tasks:
    """The database's word on this host's tasks, advanced by what it acknowledged since.

    An event that the lifecycle does not have is logged and dropped: the next answer of the
    database corrects whatever was misunderstood.
    """

    def __init__(self) -> None:
        self._machine = machine(TASK)
        self._known: dict[Key, KnownTask] = {}

    @property
    def desired(self) -> Mapping[Key, Desired]:
        return {key: task.desired for key, task in self._known.items()}

    def learn(self, answer: Iterable[Desired]) -> None:
        """Take over one whole answer to a fetch; what it does not list is known no longer."""
        listed = {task.key: task for task in answer}
        for key in self._known.keys() - listed.keys():
            self._drop(key)
        for key, said in listed.items():
            task = self._known.get(key)
            if task is None:
                self._adopt(said)
            else:
                self._follow(task, said)

    def recalled(self, ids: Collection[int]) -> list[Desired] | None:
        """Tasks that were told earlier and run by now; None where one of them was not."""
        if not ids:
            return []
        known = {task.desired.task_id: task.desired for task in self._known.values()}
        if not known.keys() >= set(ids):
            return None
        return [replace(known[task_id], state="running") for task_id in ids]

    def acknowledge(self, reports: Iterable[Report]) -> None:
        """The database has these reports: what they say is now its own word."""
        for report in reports:
            task = self._known.get(report.key)
            if task is None and report.event == "gone":
                # Nobody wants it, so it was being stopped whatever the database called it.
                task = self._know(Desired(*report.key, "stopping"), state="stopping")
            if task is not None:
                self._fire(task, report.event)

    def forget_all(self) -> None:
        """A new incarnation begins: only its first answer says what is wanted."""
        for key in list(self._known):
            self._drop(key)

    def _adopt(self, said: Desired) -> None:
        if said.state == "starting":
            # The answer carries the claim, which the database committed before it answered.
            self._fire(self._know(said, state="assigned"), "start")
        else:
            self._know(said, state=said.state)

    def _follow(self, task: KnownTask, said: Desired) -> None:
        if said.state != task.state:
            self._fire(task, EVENT_INTO.get(said.state, "start"))
        task.desired = replace(said, state=task.state)

    def _know(self, desired: Desired, *, state: str) -> KnownTask:
        task = KnownTask(desired)
        self._machine.add_model(task, initial=state)
        self._known[desired.key] = task
        return task

    def _drop(self, key: Key) -> None:
        self._machine.remove_model(self._known.pop(key))

    def _fire(self, task: KnownTask, event: str) -> None:
        try:
            task.trigger(event)
        except MachineError:
            logger().warning(
                "illegal_event", task=str(task.desired.key), state=task.state, dropped=event
            )
        task.desired = replace(task.desired, state=task.state)
