"""The demo's farm: each task takes source files from a shared folder, one by one, and lexes them.

`todo/` has one small file for each source file, which holds its path. A task claims one by renaming
it into `doing/`: the kernel lets one renamer win. The result goes to `done/` by another rename.
Standard library only; run as `python demo_farm.py FOLDER`.
"""

import os
import random
import signal
import sys
import time
import tokenize
from pathlib import Path
from types import FrameType

#: A task works this share of its time and rests the remainder: a polite guest that takes a fifth
#: of a core, so that five of them fit on a small machine and still add up.
DUTY = 0.2
LOOK_S = 0.05


class Released(BaseException):
    """SIGTERM came: the task is being taken out of the allocation."""


class Farmhand:
    """One task's work; a SIGTERM waits for the file in hand and cuts a rest short."""

    def __init__(self, folder: Path, name: str) -> None:
        self.files = 0
        self._folder = folder
        self._name = name
        self._is_released = False
        self._is_resting = False
        signal.signal(signal.SIGTERM, self._release)

    def run(self) -> None:
        """Until nobody has work left, or the farm is closed."""
        while not (self._folder / "closed").exists():
            tickets = os.listdir(self._folder / "todo")
            # Everybody in an order of its own, so that two seldom want the same file.
            random.Random(self._name).shuffle(tickets)
            for ticket in tickets:
                self._work(ticket)
                if (self._folder / "closed").exists():
                    return
            if not tickets and not os.listdir(self._folder / "doing"):
                return
            self._rest(LOOK_S)

    def _work(self, ticket: str) -> None:
        claim = self._folder / "doing" / f"{ticket}.{self._name}"
        try:
            os.rename(self._folder / "todo" / ticket, claim)
        except FileNotFoundError:
            return
        before_s = time.process_time()
        tokens = token_count(Path(claim.read_text()))
        claim.write_text(f"{tokens}\n")
        os.rename(claim, self._folder / "done" / ticket)
        self.files += 1
        self._rest((time.process_time() - before_s) * (1 - DUTY) / DUTY)

    def _rest(self, seconds: float) -> None:
        self._is_resting = True
        if self._is_released:
            raise Released
        time.sleep(seconds)
        self._is_resting = False

    def _release(self, _number: int, _frame: FrameType | None) -> None:
        self._is_released = True
        if self._is_resting:
            raise Released


def token_count(source: Path) -> int:
    """How many tokens a Python file has; as many as there were before its first error."""
    count = 0
    try:
        with tokenize.open(source) as text:
            for _ in tokenize.generate_tokens(text.readline):
                count += 1
    except (SyntaxError, UnicodeDecodeError, OSError):
        pass
    return count


def main(folder: Path) -> None:
    """Work, and say in the end how much that was."""
    farmhand = Farmhand(folder, f"{os.environ['XCE_ATTEMPT']}.{os.environ['XCE_TASK_INDEX']}")
    try:
        farmhand.run()
        why = "no work left"
    except Released:
        why = "released"
    print(f"{why} after {farmhand.files} files")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
