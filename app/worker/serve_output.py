"""Serves a task's output at the worker's port: from an offset to the end, or as it is written."""

import asyncio
from concurrent.futures import Executor, Future
from pathlib import Path

from app.worker.launch import output_name
from app.worker.observe import Processes
from app.worker.outputs import OutputFile, OutputGoneError
from app.worker.port import Visit
from app.worker.reconcile import Key
from app.worker.tickets import AskOutput, Ticket, Told

PART_BYTES = 128 * 1024
LOOK_FIRST_S = 0.02
LOOK_MAX_S = 0.25
#: The file may not be there yet; afterwards one that is not there is gone.
NOT_STARTED = ("assigned", "starting")


class OutputService:
    """The purpose `output`. Files are touched in threads alone: a file server may hang."""

    def __init__(self, jobs: Path, processes: Processes, threads: Executor) -> None:
        self._jobs = jobs
        self._processes = processes
        self._threads = threads

    async def serve(self, ticket: Ticket, ask: AskOutput, visit: Visit) -> None:
        """Answer one ask. Raises ConnectionError and TimeoutError where the visitor is lost."""
        key = Key(ticket.job_id, ticket.attempt, ticket.index)
        pattern = ticket.stdout if ask.stream == "stdout" else ticket.stderr
        try:
            name = output_name(ask.stream, pattern, key=key, host=ticket.host)
        except ValueError as error:
            await visit.tell(Told(ok=False, code="gone", detail=str(error)))
            return
        try:
            file = await self._open(name, ask.offset)
        except OutputGoneError as error:
            if ticket.state in NOT_STARTED:
                await self._serve_later(name, ask, key, visit)
            else:
                await visit.tell(Told(ok=False, code="gone", detail=str(error)))
            return
        try:
            if ask.follow:
                await visit.tell(Told(ok=True, start=file.at, size=file.size))
                await self._follow(file, ask.limit, Ending(self._processes, key), visit)
            else:
                await self._send(file, ask.limit, visit)
        except OutputGoneError:
            # The visitor comes again, and is told where it can go on.
            return
        finally:
            self._threads.submit(file.close)

    async def _serve_later(self, name: str, ask: AskOutput, key: Key, visit: Visit) -> None:
        """Of a task that has not started: nothing, or all from its first byte on."""
        await visit.tell(Told(ok=True, length=None if ask.follow else 0))
        ending, pause_s = Ending(self._processes, key), LOOK_FIRST_S
        while ask.follow and not ending.has_come():
            try:
                file = await self._open(name, 0)
            except OutputGoneError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_MAX_S)
                continue
            try:
                if file.at == 0:
                    await self._follow(file, ask.limit, ending, visit)
            except OutputGoneError:
                return
            finally:
                self._threads.submit(file.close)
            return

    async def _send(self, file: OutputFile, limit: int | None, visit: Visit) -> None:
        """What is there now."""
        left = file.size - file.at if limit is None else min(limit, file.size - file.at)
        await visit.tell(Told(ok=True, start=file.at, size=file.size, length=left))
        while left > 0:
            part = await self._read(file, min(left, PART_BYTES))
            if not part:
                return
            await visit.send(part)
            left -= len(part)

    async def _follow(
        self, file: OutputFile, limit: int | None, ending: "Ending", visit: Visit
    ) -> None:
        """What is there and what is written, until the limit or the end of the task."""
        left = 2**63 if limit is None else limit
        pause_s = LOOK_FIRST_S
        while left > 0:
            # First this, then the file: what was written before the end is there then.
            has_ended = ending.has_come()
            part = await self._read(file, min(left, PART_BYTES))
            if part:
                await visit.send(part)
                left -= len(part)
                pause_s = LOOK_FIRST_S
            elif has_ended:
                return
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_MAX_S)

    async def _open(self, name: str, offset: int) -> OutputFile:
        opening = self._threads.submit(OutputFile, self._jobs, name, offset)
        try:
            return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    async def _read(self, file: OutputFile, bytes_max: int) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, file.read, bytes_max)


def _close_unwanted(opening: Future[OutputFile]) -> None:
    """What was opened for a visitor who had gone by then."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class Ending:
    """Notices that a task which had processes here has none any more."""

    def __init__(self, processes: Processes, key: Key) -> None:
        self._processes = processes
        self._key = key
        self._was_alive = False

    def has_come(self) -> bool:
        """Never where that is not known, as without a keeper."""
        if not self._processes.are_known:
            return False
        process = self._processes.find(self._key)
        if process is None:
            return self._was_alive
        self._was_alive = self._was_alive or process.is_alive
        return not process.is_alive
