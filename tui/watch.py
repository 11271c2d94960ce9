"""Asks the API in threads of its own, so that nothing holds up the terminal, and tells."""

import contextlib
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import DecodeError, Struct
from textual.message import Message

from app.client.client import Client
from app.client.errors import ApiError, Refused
from app.runtime.clock import elapsed_s, now
from app.wire.jobs import Job
from tui.state import Answers, Sheets, newly_ended, sheets

OPEN_STATES = "pending,running,stopping"
ENDED_STATES = frozenset({"done", "exited"})
#: Of jobs that ended, so many are kept, and so many are asked for at a time.
ENDED_MAX = 100
ENDED_AT_ONCE = 20
BACKOFF_MAX_S = 30.0
DOUBLINGS_MAX = 10
#: After an event or a look nobody asks again for this long, and no look takes more than a fifth of
#: the time: events of a busy cluster must not become a storm of calls.
CALM_S = 0.5
SHARE = 4.0
#: Before the events are asked for again, after they were refused or nobody answered.
EVENTS_PAUSE_S = 5.0
EVENTS_REFUSED_S = 60.0

Kind = Literal["host", "job", "request"]


class Subject(NamedTuple):
    """What the detail pane is about; hosts are asked for by name, all else by id."""

    kind: Kind
    key: int
    name: str


class Told(Message):
    """All was answered; the next look comes within `next_s`."""

    def __init__(self, answers: Answers, made: Sheets, next_s: float) -> None:
        super().__init__()
        self.answers = answers
        self.made = made
        self.next_s = next_s


class Detailed(Message):
    """One thing as it is now."""

    def __init__(self, subject: Subject, thing: Struct) -> None:
        super().__init__()
        self.subject = subject
        self.thing = thing


class Troubled(Message):
    """There was no answer, or a refusal; it is tried again after so many seconds."""

    def __init__(self, error: ApiError, retry_s: float) -> None:
        super().__init__()
        self.error = error
        self.retry_s = retry_s


class _Stopped(Exception):
    pass


class Watcher:
    """Looks every `interval_s`, sooner after an event, later while nobody answers.

    `connect` makes a client without patience that tells its retries to whom it is given.
    """

    def __init__(
        self,
        connect: Callable[[Callable[[str], None]], Client],
        post: Callable[[Message], object],
        *,
        interval_s: float,
    ) -> None:
        self._api = connect(self._end_if_stopping)
        self._feed = connect(self._end_if_stopping)
        self._post = post
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._subject: Subject | None = None
        self._heard_ended: set[int] = set()
        self._is_rung = self._is_hurried = self._is_turned = False
        self._before: Answers | None = None
        self._due_at = self._calm_until = elapsed_s()
        self._failures = 0
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("tui-looks", self._look_on), ("tui-events", self._listen_on))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Tell the threads to end; one that waits for an answer ends when that comes.

        Nobody has to wait for them: they end with the program.
        """
        self._stopping.set()
        self._wake.set()

    def hurry(self) -> None:
        """Look now."""
        self._is_hurried = True
        self._wake.set()

    def turn_to(self, subject: Subject | None) -> None:
        """Tell this one's details too, now and at every look."""
        with self._lock:
            if subject == self._subject:
                return
            self._subject = subject
            self._is_turned = True
        self._wake.set()

    def _look_on(self) -> None:
        with contextlib.suppress(_Stopped), contextlib.closing(self._api):
            while not self._stopping.is_set():
                self._take_turn()
                self._wake.wait(max(0.0, self._next_at() - elapsed_s()))
                self._wake.clear()

    def _next_at(self) -> float:
        return min(self._due_at, self._calm_until) if self._is_rung else self._due_at

    def _take_turn(self) -> None:
        is_due = self._is_hurried or elapsed_s() >= self._next_at()
        try:
            if is_due:
                self._is_hurried = self._is_rung = False
                self._look()
            if is_due or self._is_turned:
                self._show()
        except ApiError as error:
            self._fail(error)
        except DecodeError as error:
            self._fail(ApiError("not_xce", f"the answer was none of this version's: {error}"))

    def _look(self) -> None:
        began_at = elapsed_s()
        # Requests before jobs: whoever asks for a request's job finds it, or it has just ended.
        requests = list(self._api.open_requests())
        jobs = list(self._api.jobs(state=OPEN_STATES))
        hosts = list(self._api.hosts())
        ended = self._ended(jobs)
        at = self._api.answered_at or now()
        self._before = Answers(at, hosts, jobs, ended, requests)
        made = sheets(self._before)
        self._failures = 0
        ended_at = elapsed_s()
        pause_s = max(CALM_S, SHARE * (ended_at - began_at))
        next_s = max(self._interval_s, pause_s)
        self._calm_until = ended_at + pause_s
        self._due_at = ended_at + next_s
        self._tell(Told(self._before, made, next_s))

    def _ended(self, jobs: list[Job]) -> list[Job]:
        """Those that were seen to end, by themselves or by an event, the last ones only."""
        found = {job.id: job for job in (self._before.ended if self._before else [])}
        with self._lock:
            self._heard_ended.update(newly_ended(self._before, jobs))
            self._heard_ended = set(sorted(self._heard_ended - found.keys())[-ENDED_MAX:])
            asked = sorted(self._heard_ended)[-ENDED_AT_ONCE:]
        for job_id in asked:
            with contextlib.suppress(Refused):
                job = self._api.job(job_id)
                if job.state in ENDED_STATES:
                    found[job_id] = job
            with self._lock:
                self._heard_ended.discard(job_id)
        still_open = {job.id for job in jobs}
        ids = sorted(found.keys() - still_open)[-ENDED_MAX:]
        return [found[job_id] for job_id in ids]

    def _show(self) -> None:
        with self._lock:
            subject, self._is_turned = self._subject, False
        if subject is None:
            return
        ask: dict[Kind, Callable[[], Struct]] = {
            "host": lambda: self._api.host(subject.name),
            "job": lambda: self._api.job(subject.key),
            "request": lambda: self._api.request(subject.key),
        }
        try:
            self._tell(Detailed(subject, ask[subject.kind]()))
        except Refused as error:
            # A host that was removed is no trouble with the server.
            if error.status != 404:
                raise

    def _fail(self, error: ApiError) -> None:
        longer = 2.0 ** min(self._failures, DOUBLINGS_MAX)
        retry_s = min(BACKOFF_MAX_S, max(CALM_S, self._interval_s) * longer)
        self._failures += 1
        self._due_at = self._calm_until = elapsed_s() + retry_s
        self._tell(Troubled(error, retry_s))

    def _listen_on(self) -> None:
        with contextlib.suppress(_Stopped), contextlib.closing(self._feed):
            while not self._stopping.is_set():
                pause_s = EVENTS_PAUSE_S
                try:
                    self._listen()
                except ApiError as error:
                    # Looks go on without the events, which only make them come sooner.
                    pause_s = EVENTS_REFUSED_S if isinstance(error, Refused) else pause_s
                except DecodeError:
                    pause_s = EVENTS_REFUSED_S
                self._stopping.wait(pause_s)

    def _listen(self) -> None:
        for event in self._feed.follow_events("now"):
            self._end_if_stopping("")
            if event.kind == "job" and event.target in ENDED_STATES and event.job_id is not None:
                with self._lock:
                    self._heard_ended.add(event.job_id)
            self._is_rung = True
            self._wake.set()

    def _tell(self, message: Message) -> None:
        # The loop of a screen that was closed meanwhile takes no more messages.
        with contextlib.suppress(RuntimeError):
            self._post(message)

    def _end_if_stopping(self, _: str) -> None:
        if self._stopping.is_set():
            raise _Stopped
