"""`xce up --keep-tasks`: leaves keepers and tasks alone for a while, and takes them over again."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.daemons.keeper_watch import KeeperWatch
from app.db.administration import Administration

FENCE = "fence_s"
LOOK_S = 0.05
RING_S = 0.5
#: Exchanges that the keepers know of by then are this much younger at most.
SLACK_S = 30.0


class Keeping:
    """The fence setting while nobody is here, kept in a file of the folder until it is set back."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "keeping.json"

    def lengthen(
        self,
        administration: Administration,
        keepers: Sequence[KeeperWatch],
        *,
        keep_s: float,
        until_s: float,
        sleep: Callable[[float], None],
    ) -> list[int]:
        """Lengthen every keeper's fence; the places of those that did not confirm it in time.

        The setting is changed and the workers' bells are rung; that a keeper counts with the longer
        fence is read from the keeper itself. `until_s` is a monotonic time.
        """
        before = administration.settings()[FENCE]
        if not self._file.exists():
            self._file.write_text(json.dumps({FENCE: before}))
        if keep_s > before:
            administration.write_settings({FENCE: keep_s})
        least_s = max(keep_s, before) - SLACK_S
        ring_at_s = 0.0
        while True:
            late = [place for place, keeper in enumerate(keepers) if keeper.fence_s() < least_s]
            now_s = time.monotonic()
            if not late or now_s > until_s:
                return late
            if now_s >= ring_at_s:
                # Again and again: an exchange that follows another closely renews no fence.
                administration.ring(administration.host_channels())
                ring_at_s = now_s + RING_S
            sleep(LOOK_S)

    def set_back(self, administration: Administration) -> None:
        """What the last run lengthened is as it was before; nothing where it did not."""
        if not self._file.exists():
            return
        administration.write_settings({FENCE: json.loads(self._file.read_text())[FENCE]})
        self._file.unlink()
