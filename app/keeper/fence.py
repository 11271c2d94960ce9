"""Until when tasks may run and start without another word from the database."""

import contextlib
import json
import os
import time

FENCE_FILE = "fence.json"


def boottime_ns() -> int:
    """The clock that also counts while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Fence:
    """A deadline on CLOCK_BOOTTIME, kept in a file for a successor; closed until first renewed."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.sent_at_ns = 0
        self.deadline_ns = 0
        self._load()

    def is_open(self) -> bool:
        return boottime_ns() < self.deadline_ns

    def renew(self, fence_ns: int, sent_at_ns: int) -> bool:
        """Count `fence_ns` from the sending of an answered exchange; False when it is old news.

        A newer exchange may also shorten the fence. An older one changes nothing: its answer
        was overtaken, and its length was given before the newer one.
        """
        if sent_at_ns < self.sent_at_ns:
            return False
        self.sent_at_ns = sent_at_ns
        self.deadline_ns = sent_at_ns + fence_ns
        self._save()
        return True

    def _save(self) -> None:
        state = {
            "boot_id": self.boot_id,
            "sent_at_boottime_ns": self.sent_at_ns,
            "deadline_boottime_ns": self.deadline_ns,
        }
        # No fsync: the clock starts anew with the machine, so only a crash of the keeper counts.
        # A full disk must not stop the tasks; a successor then knows an older deadline.
        fresh = FENCE_FILE + ".new"
        with contextlib.suppress(OSError):
            with open(fresh, "w", encoding="ascii") as file:
                json.dump(state, file)
            os.replace(fresh, FENCE_FILE)

    def _load(self) -> None:
        """Go on with a predecessor's deadline; without one of this boot the fence stays closed."""
        try:
            with open(FENCE_FILE, encoding="ascii") as file:
                state = json.load(file)
            if state["boot_id"] == self.boot_id:
                self.deadline_ns = int(state["deadline_boottime_ns"])
                self.sent_at_ns = int(state["sent_at_boottime_ns"])
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError):
            # Tasks imply a file, so an unreadable one hides a deadline: closed is the safe reading.
            return
