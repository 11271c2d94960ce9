"""Amounts of what a host has and a task needs."""

from typing import NamedTuple


class Resources(NamedTuple):
    """Cpus, memory and gpus, of a host or for one task.

    A tuple and not a Struct because the planner uses it as a dictionary key ten thousand times a
    tick, and a tuple hashes without calling back into Python.
    """

    cpus: int
    mem_mib: int = 0
    gpus: int = 0

    def times_in(self, free: "Resources") -> int:
        """How many such amounts fit into `free`; something has to be asked for."""
        return min(have // need for have, need in zip(free, self, strict=True) if need)

    def taken_from(self, free: "Resources", times: int) -> "Resources":
        """What is left of `free` after `times` such amounts; negative `times` gives back."""
        return Resources(
            free.cpus - times * self.cpus,
            free.mem_mib - times * self.mem_mib,
            free.gpus - times * self.gpus,
        )


NOTHING = Resources(0, 0, 0)
