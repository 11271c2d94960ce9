"""Named points at which a test makes a daemon fail; they do nothing unless armed.

`XCE_FAILPOINTS=doorbell_swallowed,after_claim_before_spawn` arms them for one process.
"""

import os
import signal

#: Every notification is swallowed: what waits is woken by its poll only (DESIGN R7).
DOORBELL_SWALLOWED = "doorbell_swallowed"


def is_armed(name: str) -> bool:
    """Whether this process was started with the failpoint armed."""
    return name in os.environ.get("XCE_FAILPOINTS", "").split(",")


def die_at(name: str) -> None:
    """End this process as a power cut would, if the failpoint is armed."""
    if is_armed(name):
        os.kill(os.getpid(), signal.SIGKILL)
