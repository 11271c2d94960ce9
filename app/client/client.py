"""Typed calls to our REST API, one method each; no printing."""

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from app.client.errors import NotConfigured
from app.client.following import follow
from app.client.link import PATIENCE_S, Link
from app.client.output import Output
from app.wire.encoding import decode, encode
from app.wire.events import Event, EventPage
from app.wire.fields import Range
from app.wire.hosts import Host, HostDown, HostDrain, HostPut
from app.wire.jobs import Job, JobSubmit, Nothing, Task
from app.wire.pages import Page
from app.wire.reports import Allocation, HistoryItem, Usage, UsageReport
from app.wire.resizes import CancelAsk, Resize, ResizeAsk, ShrinkAsk
from app.wire.settings import Setting, SettingPut
from app.wire.tokens import Token, TokenAsk

Shape = TypeVar("Shape")
LIMIT = 1_000
#: Shorter than the link waits for an answer.
WAIT_MAX_S = 20.0


class Client:
    """The API as one caller sees it. Every method raises Refused and Unavailable."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        patience_s: float = PATIENCE_S,
        on_retry: Callable[[str], None] | None = None,
    ) -> "Client":
        """From XCE_API_URL, and XCE_TOKEN or XCE_TOKEN_FILE. Raises NotConfigured."""
        values = os.environ if environment is None else environment
        url = values.get("XCE_API_URL", "")
        if not url:
            raise NotConfigured(
                "XCE_API_URL is not set; `xce up` prints it, for instance http://127.0.0.1:8420"
            )
        ca_file = values.get("XCE_CA_FILE")
        token = _token(values)
        return cls(Link(url, token, patience_s=patience_s, ca_file=ca_file, on_retry=on_retry))

    def submit(self, ask: JobSubmit) -> Job:
        return self._post("/v1/jobs", ask, Job)

    def jobs(self, **filters: str | None) -> Iterator[Job]:
        """All jobs the caller sees, by id.

        Filters are `state`, `name`, `owner`, `project` and `queue`.
        """
        return self._pages("/v1/jobs", Job, filters)

    def job(self, job_id: int) -> Job:
        return self._get(f"/v1/jobs/{job_id}", Job)

    def kill(self, job_id: int, *, if_match: int | None = None) -> Job:
        return self._command("kill", job_id, if_match)

    def requeue(self, job_id: int, *, if_match: int | None = None) -> Job:
        """Stop a running job and run it again with the tasks it was submitted with."""
        return self._command("requeue", job_id, if_match)

    def hold(self, job_id: int, *, if_match: int | None = None) -> Job:
        """Place nothing new of it until `release`."""
        return self._command("hold", job_id, if_match)

    def release(self, job_id: int, *, if_match: int | None = None) -> Job:
        return self._command("release", job_id, if_match)

    def _command(self, verb: str, job_id: int, if_match: int | None) -> Job:
        return self._post(f"/v1/jobs/{job_id}/{verb}", Nothing(), Job, if_match)

    def tasks(self, job_id: int, *, is_all: bool = False, **filters: str | None) -> Iterator[Task]:
        """The open tasks, or all there ever were; filters are `state` and `host`."""
        return self._pages(f"/v1/jobs/{job_id}/tasks", Task, {"all": _flag(is_all), **filters})

    def output(
        self,
        job_id: int,
        index: int,
        *,
        stream: str = "stdout",
        follow: bool = False,
        **members: int | None,
    ) -> Output:
        """What a task has written, or with `follow` writes; whoever asks for it closes it.

        `offset` is the first byte wanted, or counted from the end where negative; `limit` the
        most bytes; `attempt` the run of the task (the newest). May be called by several threads.
        """
        given = {name: str(value) for name, value in members.items() if value is not None}
        query = _query({"stream": stream, "follow": _flag(follow), **given})
        return Output(self._link.stream(f"/v1/jobs/{job_id}/tasks/{index}/output{query}"))

    def resize(self, job_id: int, ask: ResizeAsk, *, if_match: int | None = None) -> Resize:
        """Ask to grow or to shrink."""
        return self._post(f"/v1/jobs/{job_id}/resizes", ask, Resize, if_match)

    def grow(self, job_id: int, tasks: int | Range) -> Resize:
        return self.resize(job_id, ResizeAsk(grow=tasks))

    def shrink(self, job_id: int, ask: ShrinkAsk) -> Resize:
        return self.resize(job_id, ResizeAsk(shrink=ask))

    def cancel(self, request_id: int, *, count: int | None = None) -> Resize:
        """Take a request back, or `count` of its tasks."""
        return self._post(f"/v1/resizes/{request_id}/cancel", CancelAsk(count), Resize)

    def request(self, request_id: int) -> Resize:
        return self._get(f"/v1/resizes/{request_id}", Resize)

    def requests(
        self, job_id: int, *, is_all: bool = False, **filters: str | None
    ) -> Iterator[Resize]:
        """Grows and shrinks of a job; its starts too with `is_all`. Filters: `state`, `kind`."""
        return self._pages(f"/v1/jobs/{job_id}/resizes", Resize, {"all": _flag(is_all), **filters})

    def open_requests(self, **filters: str | None) -> Iterator[Resize]:
        """Open requests of all jobs that the caller sees, by id. Filters: `state`, `kind`."""
        return self._pages("/v1/resizes", Resize, filters)

    def wait(self, request_id: int, *, timeout_s: float) -> Resize:
        """The request once it is final, or as it is when the time is up; at most WAIT_MAX_S."""
        query = _query({"timeout_s": f"{min(max(timeout_s, 0.0), WAIT_MAX_S):.3f}"})
        return self._get(f"/v1/resizes/{request_id}/wait{query}", Resize)

    def history(self, job_id: int) -> Iterator[HistoryItem]:
        return self._pages(f"/v1/jobs/{job_id}/history", HistoryItem, {})

    def request_history(self, request_id: int) -> Iterator[HistoryItem]:
        return self._pages(f"/v1/resizes/{request_id}/history", HistoryItem, {})

    def usage(self, job_id: int) -> Usage:
        return self._get(f"/v1/jobs/{job_id}/usage", Usage)

    def allocation(self, job_id: int, *, as_of: str | None = None) -> Allocation:
        """Now, or at a time in RFC 3339."""
        query = _query({"as_of": as_of})
        return self._get(f"/v1/jobs/{job_id}/allocation{query}", Allocation)

    def usage_report(self, **asked: str | None) -> UsageReport:
        """What jobs were given; asked for `from`, `to`, `by` and `tz`."""
        return self._get(f"/v1/usage{_query(asked)}", UsageReport)

    def events(self, after: str | None = None, *, job_id: int | None = None) -> Iterator[Event]:
        """What happened after a cursor, up to now; `after` None is the oldest that is kept."""
        while True:
            page = self._events(after, job_id, LIMIT)
            yield from page.items
            if page.next == after:
                return
            after = page.next

    def follow_events(
        self, after: str | None = None, *, job_id: int | None = None
    ) -> Iterator[Event]:
        """What happened after a cursor or `now`, and then what happens, for ever.

        Comes back by itself where the connection is lost, without a gap and without a double.
        """
        if after == "now":
            # Resolved once: a stream that is lost before its first event would begin later.
            after = self._events(after, job_id, 1).next
        return follow(self._link, "/v1/events" + _query(_feed(after, job_id)))

    def _events(self, after: str | None, job_id: int | None, limit: int) -> EventPage:
        query = _query({**_feed(after, job_id), "limit": str(limit)})
        return self._get(f"/v1/events{query}", EventPage)

    def hosts(self, *, state: str | None = None) -> Iterator[Host]:
        return self._pages("/v1/hosts", Host, {"state": state})

    def host(self, name: str) -> Host:
        return self._get(_host(name), Host)

    def put_host(self, name: str, size: HostPut) -> Host:
        """Make a host, or give it another size and other labels."""
        return self._put(_host(name), size, Host)

    def drain(self, name: str, *, shrink: bool = False) -> Host:
        """Start nothing new there; with `shrink` jobs that can leave it are asked to."""
        return self._post(f"{_host(name)}/drain", HostDrain(shrink), Host)

    def resume(self, name: str) -> Host:
        return self._post(f"{_host(name)}/resume", Nothing(), Host)

    def retire(self, name: str, *, confirm_dead: bool) -> Host:
        """Vouch that a lost host is off: its tasks end as lost."""
        return self._post(f"{_host(name)}/down", HostDown(confirm_dead), Host)

    def remove_host(self, name: str) -> None:
        self._link.send("DELETE", _host(name), b"", {})

    def settings(self) -> list[Setting]:
        return self._get("/v1/settings", Page[Setting]).items

    def put_setting(self, name: str, value: float) -> Setting:
        return self._put(f"/v1/settings/{quote(name, safe='')}", SettingPut(value), Setting)

    def tokens(self, **filters: str | None) -> Iterator[Token]:
        """The caller's tokens, an operator's everybody's; filters: `user`, `role`, `state`."""
        return self._pages("/v1/tokens", Token, filters)

    def caller(self) -> Token:
        """The token that calls."""
        return self._get("/v1/caller", Token)

    def create_token(self, ask: TokenAsk) -> Token:
        """A new token. `token` is missing where an answer got lost on the way."""
        return self._post("/v1/tokens", ask, Token)

    def revoke_token(self, token_id: int) -> None:
        self._link.send("DELETE", f"/v1/tokens/{token_id}", b"", {})

    @property
    def answered_at(self) -> datetime | None:
        """The API's own time of its last answer, to the second; None before the first."""
        return self._link.answered_at

    def close(self) -> None:
        self._link.close()

    def _get(self, path: str, shape: type[Shape]) -> Shape:
        return decode(self._link.get(path).body, shape)

    def _post(self, path: str, body: Any, shape: type[Shape], if_match: int | None = None) -> Shape:
        headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
        return decode(self._link.send("POST", path, encode(body), headers).body, shape)

    def _put(self, path: str, body: Any, shape: type[Shape]) -> Shape:
        return decode(self._link.send("PUT", path, encode(body), {}).body, shape)

    def _pages(
        self, path: str, shape: type[Shape], filters: Mapping[str, str | None]
    ) -> Iterator[Shape]:
        cursor: str | None = None
        while True:
            query = _query({**filters, "limit": str(LIMIT), "cursor": cursor})
            page: Page[Shape] = self._get(path + query, Page[shape])  # type: ignore[valid-type]
            yield from page.items
            cursor = page.next
            if cursor is None:
                return


def _host(name: str) -> str:
    return f"/v1/hosts/{quote(name, safe='')}"


def _query(values: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _feed(after: str | None, job_id: int | None) -> dict[str, str | None]:
    return {"after": after, "job_id": None if job_id is None else str(job_id)}


def _flag(value: bool) -> str | None:
    return "true" if value else None


def _token(values: Mapping[str, str]) -> str:
    token = values.get("XCE_TOKEN", "").strip()
    if token:
        return token
    path = values.get("XCE_TOKEN_FILE", "")
    if not path:
        raise NotConfigured("neither XCE_TOKEN nor XCE_TOKEN_FILE is set; `xce up` says which file")
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise NotConfigured(f"XCE_TOKEN_FILE cannot be read: {error}") from error
