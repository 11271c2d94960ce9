"""`xcecli logs`."""

import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from app.cli.jobs import ENDED
from app.cli.reading import Printer, Wish, parts
from app.cli.session import client, exit_code, say, words
from app.cli.values import COUNT, TASK

if TYPE_CHECKING:
    from app.client.client import Client
    from app.client.errors import ApiError

#: Fewer than the API lets one user have.
TOGETHER_MAX = 48
LOOK_S = 1.0
Run = tuple[int, int]


@click.command()
@click.argument("target", metavar="JOB[.INDEX]", type=TASK)
@click.option(
    "--stream", type=click.Choice(["stdout", "stderr"]), default="stdout", show_default=True
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the task, or the job, has ended.")
@click.option("--tail", type=COUNT, metavar="BYTES", help="Only the last BYTES of what is there.")
def logs(target: tuple[int, int | None], stream: str, follow: bool, tail: int | None) -> None:
    """Print what task INDEX of JOB has written; of all its tasks, each line behind `INDEX| `.

    After a requeue it is the newest attempt's.
    """
    job_id, index = target
    wish = Wish(stream, tail, follow)
    with client() as api:
        if index is not None:
            printer = Printer()
            for part in parts(api, job_id, index, wish):
                printer.plain(part)
            return
        readers = Readers(api, job_id, wish)
        if follow:
            readers.follow()
        else:
            readers.read()
    if readers.failure is not None:
        sys.exit(exit_code(readers.failure))


class Readers:
    """Of all tasks of a job; `failure` is that of the first task that could not be read."""

    def __init__(self, api: "Client", job_id: int, wish: Wish) -> None:
        self.failure: ApiError | None = None
        self._api = api
        self._job_id = job_id
        self._wish = wish
        self._printer = Printer()
        self._has_reader = True

    def read(self) -> None:
        """One task after the other."""
        for run in self._runs():
            self._read(run)

    def follow(self) -> None:
        """All at once, also those that come later, until the job has ended."""
        waiting, seen = self._runs(), set[Run]()
        threads: list[threading.Thread] = []
        is_told = False
        while self._has_reader:
            threads = [thread for thread in threads if thread.is_alive()]
            seen.update(waiting)
            while waiting and len(threads) < TOGETHER_MAX:
                threads.append(
                    threading.Thread(target=self._read, args=(waiting.pop(0),), daemon=True)
                )
                threads[-1].start()
            if waiting and not is_told:
                say(f"{TOGETHER_MAX} tasks are followed at once; the others come afterwards")
                is_told = True
            # First this, then its tasks: an ended job gets no more of them.
            has_ended = self._api.job(self._job_id).state in ENDED
            waiting += [run for run in self._runs(min(seen, default=None)) if run not in seen]
            if has_ended and not waiting and not threads:
                return
            time.sleep(LOOK_S if not has_ended else LOOK_S / 10)
        raise BrokenPipeError

    def _runs(self, since: Run | None = None) -> list[Run]:
        """(attempt, index) of the newest attempt's tasks that may have written something.

        With `since` those of all attempts from that one's on.
        """
        tasks = [t for t in self._api.tasks(self._job_id, is_all=True) if t.how != "withdrawn"]
        newest = max((task.attempt for task in tasks), default=0)
        first = newest if since is None else since[0]
        return sorted((task.attempt, task.index) for task in tasks if task.attempt >= first)

    def _read(self, run: Run) -> None:
        from app.client.errors import ApiError

        attempt, index = run
        try:
            self._printer.lines(index, parts(self._api, self._job_id, index, self._wish, attempt))
        except ApiError as error:
            say(f"task {index}: {words(error)}")
            self.failure = self.failure or error
        except BrokenPipeError:
            self._has_reader = False
