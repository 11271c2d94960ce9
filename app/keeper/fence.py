"""Until when tasks may run and start without another word from the database."""

import contextlib
import json
import os
import time

FENCE_FILE = "fence.json"
FENCE_FILE_BYTES = 256
READINGS_MAX = 5


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
        # In place, because a full disk must not hide a renewal from the shims. No fsync: the
        # clock starts anew with the machine, so only a crash of the keeper counts.
        text = json.dumps(state).ljust(FENCE_FILE_BYTES).encode()
        with contextlib.suppress(OSError):
            fd = os.open(FENCE_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, text, 0)
            finally:
                os.close(fd)

    def _load(self) -> None:
        """Go on with a predecessor's deadline; without one of this boot the fence stays closed."""
        self.sent_at_ns, self.deadline_ns = _read(self.boot_id)


def read_deadline_ns(boot_id: str) -> int:
    """What the keeper of this run folder wrote last; 0, which has passed, where that is nothing."""
    return _read(boot_id)[1]


def _read(boot_id: str) -> tuple[int, int]:
    for _ in range(READINGS_MAX):
        try:
            with open(FENCE_FILE, encoding="ascii") as file:
                state = json.load(file)
            is_of_this_boot = state["boot_id"] == boot_id
            sent_at_ns, deadline_ns = (
                int(state[f"{name}_boottime_ns"]) for name in ("sent_at", "deadline")
            )
            return (sent_at_ns, deadline_ns) if is_of_this_boot else (0, 0)
        except FileNotFoundError:
            break
        except (ValueError, KeyError, TypeError):
            # Perhaps it is being written.
            continue
    # Tasks imply a file, so an unreadable one hides a deadline: closed is the safe reading.
    return 0, 0
