"""Which process belongs to which task: by ancestry, session, memory and environment."""

import os
from collections.abc import Collection

from app.keeper import proctable
from app.keeper.proctable import Identity, Seen
from app.keeper.spawn import Launcher
from app.keeper.task import Task

NEWEST = 8

_KERNEL_THREADS = (0, 2)


class Census:
    """Attributes processes to tasks. Knows nothing of signals.

    As the keeper inherits every orphan, the tree of a task hangs, once its main process is gone,
    on children of the keeper: a list that the kernel keeps, so that most ends cost one short read.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._own_pid = os.getpid()
        self._own_session = os.getsid(0)

    def claim_strays(self, tasks: Collection[Task]) -> list[int]:
        """Give each child of the keeper that nobody knows yet to its task; returns all children."""
        children = proctable.own_children()
        mains = {task.record.pid for task in tasks if task.is_child and task.main_lives}
        mains.add(self._launcher.spare_pid)
        known: set[Identity] = set()
        for task in tasks:
            known |= task.members
        for pid in set(children) - mains:
            seen = proctable.look(pid)
            if seen is not None and seen.identity not in known:
                self.survey(tasks)
                break
        return children

    def survey(self, tasks: Collection[Task]) -> dict[int, Seen]:
        """Read our tree, and let every task remember what is in its own.

        The orphans of a predecessor's tasks went to init, so these need the whole process table.
        """
        is_ours = all(task.is_child for task in tasks)
        pids_of = {task: task.cgroup.pids() for task in tasks if task.cgroup is not None}
        table = proctable.own_tree() if is_ours else proctable.everything()
        # Whatever a record says, neither we nor init are part of a task.
        for pid in (1, self._own_pid):
            table.pop(pid, None)
        claims = _Claims(table, (0, self._own_session))
        for task in tasks:
            claims.seed(task, pids_of.get(task, []))
        claims.spread()
        self._claim_by_mark(claims, tasks)
        self._claim_the_rest(claims, tasks)
        for task in tasks:
            task.members &= {seen.identity for seen in table.values()}
        for pid, task in claims.owner.items():
            seen = table[pid]
            # Dead children of others are theirs to bury; ours still have to be waited for.
            if seen.identity != task.main and (not seen.is_dead or seen.parent == self._own_pid):
                task.members.add(seen.identity)
        return table

    def newest_orphan(self, task: Task) -> int | None:
        """The last to come of the keeper's living children with the task's mark.

        Quicker than a survey by far, and no slower for the many dead that wait to be buried.
        """
        for pid in reversed(proctable.own_children()[-NEWEST:]):
            if proctable.mark_of(pid) == task.record.mark:
                return pid
        return None

    def is_empty(self, task: Task, tasks: Collection[Task]) -> bool:
        """No process of a task whose main process is gone is left.

        Its cgroup knows for sure but of those that asked to be moved out of it.
        """
        if task.cgroup is not None and not task.cgroup.is_empty():
            return False
        if task.is_child:
            children = self.claim_strays(tasks)
            return not any(pid in children for pid, _ in task.members)
        # Orphans of a predecessor's task go to init. A process may fork and die behind the back
        # of one reading; that two miss it needs the same twice.
        return not any(self._lives_after_survey(task, tasks) for _ in range(2))

    def _lives_after_survey(self, task: Task, tasks: Collection[Task]) -> bool:
        table = self.survey(tasks)
        return any(not table[pid].is_dead for pid, _ in task.members if pid in table)

    def _claim_by_mark(self, claims: "_Claims", tasks: Collection[Task]) -> None:
        marks = {task.record.mark: task for task in tasks if task.record.mark}
        oldest = min((t.record.start_ticks for t in tasks if not t.is_child), default=None)
        for seen in claims.unowned():
            is_ours = seen.parent == self._own_pid
            may_be_a_predecessors = oldest is not None and seen.start_ticks >= oldest
            if is_ours or (may_be_a_predecessors and seen.parent not in _KERNEL_THREADS):
                task = marks.get(proctable.mark_of(seen.pid) or "")
                if task is not None:
                    claims.claim(seen.pid, task)
                    claims.spread()

    def _claim_the_rest(self, claims: "_Claims", tasks: Collection[Task]) -> None:
        """An orphan without mark and memory goes to the one task that can have made it.

        With several such tasks it waits until all but one are gone; ending it earlier could end
        a part of a task that nobody asked to stop.
        """
        for seen in claims.unowned():
            if seen.parent == self._own_pid and seen.pid != self._launcher.spare_pid:
                makers = [task for task in tasks if task.record.start_ticks <= seen.start_ticks]
                if len(makers) == 1:
                    claims.claim(seen.pid, makers[0])
                    claims.spread()


class _Claims:
    """Who owns what in one reading of the table, spread from the known to their kin."""

    def __init__(self, table: dict[int, Seen], foreign_sessions: tuple[int, ...]) -> None:
        self.owner: dict[int, Task] = {}
        self._table = table
        self._foreign = foreign_sessions
        self._fresh: list[int] = []
        self._children: dict[int, list[int]] = {}
        self._sessions: dict[int, list[int]] = {}
        for seen in table.values():
            self._children.setdefault(seen.parent, []).append(seen.pid)
            self._sessions.setdefault(seen.session, []).append(seen.pid)

    def seed(self, task: Task, pids: list[int]) -> None:
        """Known for sure: what is in its cgroup, the main process, and those remembered."""
        for pid in pids:
            if pid in self._table:
                self.claim(pid, task)
        for pid, start_ticks in (task.main, *task.members):
            seen = self._table.get(pid)
            if seen is not None and seen.start_ticks == start_ticks:
                self.claim(pid, task)

    def claim(self, pid: int, task: Task) -> None:
        if pid not in self.owner:
            self.owner[pid] = task
            self._fresh.append(pid)

    def spread(self) -> None:
        """To children, and to sessions: a task's were all made within it, but for the keeper's."""
        while self._fresh:
            pid = self._fresh.pop()
            task, session = self.owner[pid], self._table[pid].session
            kin = self._children.get(pid, [])
            if session not in self._foreign:
                kin = kin + self._sessions[session]
            for relative in kin:
                self.claim(relative, task)

    def unowned(self) -> list[Seen]:
        return [seen for pid, seen in self._table.items() if pid not in self.owner]
