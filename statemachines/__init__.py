"""What may happen: every lifecycle of xce, written once as data (PROTOCOL §1)."""

from statemachines.host import HOST
from statemachines.job import JOB
from statemachines.resize import GROW, HOOK, SHRINK, START
from statemachines.table import Edge, IllegalEdgeError, Lifecycle, State
from statemachines.task import TASK

LIFECYCLES = (START, GROW, SHRINK, TASK, JOB, HOST, HOOK)

__all__ = [
    "GROW",
    "HOOK",
    "HOST",
    "JOB",
    "LIFECYCLES",
    "SHRINK",
    "START",
    "TASK",
    "Edge",
    "IllegalEdgeError",
    "Lifecycle",
    "State",
]
