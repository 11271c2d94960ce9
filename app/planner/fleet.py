"""Hosts ordered by how many tasks of one shape they take, kept so while a plan uses them up."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable

from app.model import Constraint, Resources

Labels = tuple[tuple[str, str], ...]
Shape = tuple[Resources, tuple[Constraint, ...]]
#: (1 where gpus would lie idle that the shape does not ask for, tasks that fit)
Room = tuple[int, int]

_NO_ROOM: Room = (0, 0)


class Fleet:
    """What each of some hosts has, and an index of it for every shape that was asked for.

    Indexes are made when first needed and catch up with a log of changes when used again: a plan
    of a thousand requests has few shapes, and sorting the hosts for each request costs seconds.
    `is_empty` says that nobody's tasks are subtracted, a job's own neither.
    """

    def __init__(
        self, hosts: Iterable[tuple[int, Resources, Labels]], *, is_empty: bool = False
    ) -> None:
        self.is_empty = is_empty
        self.amounts: dict[int, Resources] = {}
        self.labels: dict[int, Labels] = {}
        self.log: list[tuple[int, Resources, Resources]] = []
        self.alike: dict[tuple[Resources, Labels], list[int]] = defaultdict(list)
        self._rooms: dict[Shape, Rooms] = {}
        for host_id, amount, labels in sorted(hosts):
            self.amounts[host_id] = amount
            self.labels[host_id] = labels
            self.alike[amount, labels].append(host_id)

    def rooms(self, shape: Shape) -> "Rooms":
        """The index for one shape, as of all changes so far."""
        found = self._rooms.get(shape)
        if found is None:
            found = self._rooms[shape] = Rooms(self, shape)
        found.catch_up()
        return found

    def take(self, host_id: int, resources: Resources, times: int) -> None:
        """Use `times` × `resources` of a host, if it is known; negative `times` gives back."""
        before = self.amounts.get(host_id)
        if before is not None:
            after = resources.taken_from(before, times)
            self.amounts[host_id] = after
            self.log.append((host_id, before, after))


class Rooms:
    """Hosts with room for a shape: for each Room the ids that have it, ascending."""

    def __init__(self, fleet: Fleet, shape: Shape) -> None:
        self.is_empty = fleet.is_empty
        self.stacks: dict[Room, list[int]] = defaultdict(list)
        self._fleet = fleet
        self._resources, self._constraints = shape
        self._by_amount: dict[Resources, Room] = {}
        self._read = 0
        for (amount, labels), ids in fleet.alike.items():
            room = self._room_in(amount)
            if room[1] > 0 and self._admits(labels):
                self.stacks[room].extend(ids)
        for stack in self.stacks.values():
            stack.sort()

    def room(self, host_id: int) -> Room:
        """What one host has; nothing where it is unknown or lacks a label."""
        amount = self._fleet.amounts.get(host_id)
        if amount is None or (self._constraints and not self._admits(self._fleet.labels[host_id])):
            return _NO_ROOM
        return self._room_in(amount)

    def total(self, per_host: int | None) -> int:
        """Tasks that fit on all hosts together, at most `per_host` on each."""
        return sum(
            len(ids) * (room if per_host is None else min(room, per_host))
            for (_, room), ids in self.stacks.items()
        )

    def catch_up(self) -> None:
        log = self._fleet.log
        for host_id, before, after in log[self._read :]:
            old, new = self._room_in(before), self._room_in(after)
            if old != new and self._admits(self._fleet.labels[host_id]):
                self._move(host_id, old, new)
        self._read = len(log)

    def _move(self, host_id: int, old: Room, new: Room) -> None:
        if old[1] > 0:
            stack = self.stacks[old]
            del stack[bisect_left(stack, host_id)]
            if not stack:
                del self.stacks[old]
        if new[1] > 0:
            insort(self.stacks[new], host_id)

    def _room_in(self, amount: Resources) -> Room:
        room = self._by_amount.get(amount)
        if room is None:
            is_waste = amount.gpus > 0 and self._resources.gpus == 0
            room = (int(is_waste), self._resources.times_in(amount))
            self._by_amount[amount] = room
        return room

    def _admits(self, labels: Labels) -> bool:
        return all(constraint.is_met_by(labels) for constraint in self._constraints)
