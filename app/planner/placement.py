"""Which hosts a demand gets: few and full ones, the same ones every time.

Packed, not spread: a task farm cares for room, and what is left whole can still take a job that
must stay on one host. In this order:

1. with `existing_hosts: prefer`, hosts where the job stays, then the others;
2. hosts with idle gpus come last for tasks that ask for none;
3. a host that takes all that is left goes first, the fullest such (best fit);
4. else the hosts that take most, up to the span, so that the job has few hosts;
5. ties by id, ascending.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from heapq import merge

from msgspec import Struct

from app.model import Constraint, Resources, Span
from app.model.snapshot import ExistingHosts
from app.planner.fleet import Rooms, Shape

Hosts = tuple[tuple[int, int], ...]

_UNBOUNDED = 2**31
_ANYWHERE = Span()


class Demand(Struct, frozen=True, gc=False):
    """What is asked for, from `minimum` to `maximum` tasks, beside what the job has already.

    `own` is (host id, open tasks and holds), ascending; `staying` the same without what is leaving.
    Of a plain demand only their number is told, in `elsewhere`.
    """

    resources: Resources
    minimum: int
    maximum: int
    constraints: tuple[Constraint, ...] = ()
    span: Span = Span()
    existing_hosts: ExistingHosts = "any"
    own: Hosts = ()
    staying: Hosts = ()
    named: frozenset[int] | None = None
    excluded: frozenset[int] = frozenset()
    elsewhere: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether any host is as good as any other, also one where the job is already."""
        is_anywhere = self.span == _ANYWHERE and self.existing_hosts == "any"
        return is_anywhere and self.named is None and not self.excluded and not self.constraints

    @property
    def shape(self) -> Shape:
        return self.resources, self.constraints


class _Offer(Struct, frozen=True, gc=False):
    """Hosts alike for a demand: `room` is what they have, `most` what the span lets them give.

    Hosts in `skipped` are not of them, `first` is; a whole stack is never copied for one demand.
    """

    room: int
    most: int
    first: int
    stack: Sequence[int]
    skipped: Set[int] = frozenset()

    def ids(self) -> Iterator[int]:
        return (host_id for host_id in self.stack if host_id not in self.skipped)


def chosen_hosts(demand: Demand, rooms: Rooms) -> Hosts | None:
    """As many tasks as fit, most first, as (host id, tasks); None where it is less than minimum."""
    elsewhere = demand.elsewhere if rooms.is_empty else 0
    total = rooms.total(demand.span.per_host) - elsewhere
    if demand.named is None and total < demand.minimum:
        return None
    offers = _offers(demand, rooms)
    if demand.span.is_one_host:
        return _one_host(demand, offers)
    picked: list[tuple[int, int]] = []
    left = demand.maximum
    for rank in sorted(offers):
        if left:
            picked += _packed(offers[rank], left)
            left = demand.maximum - sum(tasks for _, tasks in picked)
    return tuple(picked) if demand.maximum - left >= demand.minimum else None


def _one_host(demand: Demand, offers: dict[tuple[int, int], list[_Offer]]) -> Hosts | None:
    """The host that gives most; among those the fullest. Where the job stays it has no choice."""
    most = max((offer.most for rank in offers.values() for offer in rank), default=0)
    tasks = min(most, demand.maximum)
    if tasks < demand.minimum:
        return None
    fits = (_tightest(offers[rank], tasks) for rank in sorted(offers))
    return next(((host_id, tasks),) for host_id in fits if host_id is not None)


def _packed(offers: list[_Offer], wanted: int) -> Iterator[tuple[int, int]]:
    """Hosts for `wanted` tasks or as many as fit, by rules 3 to 5."""
    tightest = _tightest(offers, wanted)
    if tightest is not None:
        yield tightest, wanted
        return
    by_most: dict[int, list[Iterator[int]]] = defaultdict(list)
    for offer in offers:
        by_most[offer.most].append(offer.ids())
    for most in sorted(by_most, reverse=True):
        for host_id in merge(*by_most[most]):
            tasks = min(most, wanted)
            yield host_id, tasks
            wanted -= tasks
            if not wanted:
                return


def _tightest(offers: list[_Offer], wanted: int) -> int | None:
    """The fullest host that takes all of `wanted`, if there is one."""
    return min(
        ((offer.room, offer.first) for offer in offers if offer.most >= wanted),
        default=(0, None),
    )[1]


def _offers(demand: Demand, rooms: Rooms) -> dict[tuple[int, int], list[_Offer]]:
    """What each host may give, by (1 where others are preferred, 1 where gpus would lie idle)."""
    offers: dict[tuple[int, int], list[_Offer]] = defaultdict(list)
    own, staying = dict(demand.own), dict(demand.staying)
    cap = demand.span.per_host or _UNBOUNDED
    for host_id in _singles(demand, own, staying):
        has = (staying if rooms.is_empty else own).get(host_id, 0)
        if has >= cap:
            continue
        idle_gpus, room = rooms.room(host_id)
        room -= has if rooms.is_empty else 0
        most = min(room, cap - has)
        if most > 0:
            is_second = demand.existing_hosts == "prefer" and host_id not in staying
            offers[int(is_second), idle_gpus].append(_Offer(room, most, host_id, (host_id,)))
    if demand.named is None and not (demand.span.is_one_host and staying):
        _add_stacks(demand, rooms, offers)
    return offers


def _add_stacks(demand: Demand, rooms: Rooms, offers: dict[tuple[int, int], list[_Offer]]) -> None:
    """Add the hosts that are neither named nor the job's own."""
    is_second = int(demand.existing_hosts == "prefer")
    cap = demand.span.per_host or _UNBOUNDED
    skipped = demand.excluded.union(host_id for host_id, _ in demand.own)
    for (idle_gpus, room), stack in rooms.stacks.items():
        first = next((host_id for host_id in stack if host_id not in skipped), None)
        if first is not None:
            offer = _Offer(room, min(room, cap), first, stack, skipped)
            offers[is_second, idle_gpus].append(offer)


def _singles(demand: Demand, own: dict[int, int], staying: dict[int, int]) -> Iterator[int]:
    """Hosts that are looked at one by one: the named ones, or the job's own."""
    for host_id in sorted(own.keys() if demand.named is None else demand.named):
        is_elsewhere = demand.span.is_one_host and bool(staying) and host_id not in staying
        is_unwanted = demand.existing_hosts == "exclude" and host_id in staying
        if not (host_id in demand.excluded or is_elsewhere or is_unwanted):
            yield host_id
