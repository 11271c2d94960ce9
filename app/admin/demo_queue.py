"""The demo's queue of work: a folder of tickets that the farm's tasks claim."""

import itertools
import random
import sysconfig
import time
from pathlib import Path

from app.admin.demo_farm import DUTY, token_count

BYTES_MAX = 60_000
SAMPLE = 60
FILES_MIN = 200


class Queue:
    """As many source files of this Python as its farm should need `task_seconds` for."""

    def __init__(self, folder: Path, *, task_seconds: float) -> None:
        self.folder = folder
        for name in ("todo", "doing", "done"):
            (folder / name).mkdir()
        sources = source_files()
        wanted = max(FILES_MIN, round(task_seconds * DUTY / mean_lexing_s(sources[:SAMPLE])))
        # Distributions leave the tests out of the library: then some files come more than once.
        for number, source in enumerate(itertools.islice(itertools.cycle(sources), wanted)):
            (folder / "todo" / f"{number:05}").write_text(str(source))

    def done(self) -> int:
        return sum(1 for _ in (self.folder / "done").iterdir())

    def left(self) -> int:
        return sum(1 for _ in (self.folder / "todo").iterdir())

    def close(self) -> bool:
        """Tell the farm to stop although there is work left; False when it was told before."""
        closed = self.folder / "closed"
        was_open = not closed.exists()
        closed.touch()
        return was_open


def source_files() -> list[Path]:
    """The source files of this Python, in an order in which every stretch is much like the next."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    sources = sorted(path for path in stdlib.rglob("*.py") if path.stat().st_size < BYTES_MAX)
    random.Random(1).shuffle(sources)
    return sources


def mean_lexing_s(sources: list[Path]) -> float:
    """CPU seconds that this machine needs for one of these files."""
    before_s = time.process_time()
    for source in sources:
        token_count(source)
    return (time.process_time() - before_s) / len(sources)
