"""One turn of the wheel, shared by the live and the simulated world; pure."""

from app.scheduling.store import Store
from app.scheduling.tick import TickReport, tick

__all__ = ["Store", "TickReport", "tick"]
