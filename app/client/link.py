"""One kept connection to the API, over http.client because that is quick to import."""

import http.client
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.client.errors import ApiError, NotConfigured, Refused, Unavailable, Untrusted
from app.wire.encoding import decode
from app.wire.problem import RESERVED

TIMEOUT_S = 30.0
PATIENCE_S = 5.0
FIRST_PAUSE_S = 0.05
PAUSE_MAX_S = 1.0
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
LOST = (http.client.HTTPException, OSError)


class Reply(NamedTuple):
    """An answer that is no refusal."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Streamed(NamedTuple):
    """An answer that is no refusal, its body yet to be read, and the connection it comes over."""

    conn: http.client.HTTPConnection
    answer: http.client.HTTPResponse


class Patience:
    """Pauses between two tries, each twice as long, for `patience_s` in all; None is for ever."""

    def __init__(self, patience_s: float | None, on_retry: Callable[[str], None]) -> None:
        self._give_up_at = None if patience_s is None else time.monotonic() + patience_s
        self._on_retry = on_retry
        self._pause_s = FIRST_PAUSE_S

    def lose(self, error: Unavailable) -> None:
        """Pause, after a try that failed with this; raise it where there was too much."""
        if isinstance(error, Untrusted):
            raise error
        if self._give_up_at is not None and time.monotonic() + self._pause_s > self._give_up_at:
            raise error
        self._on_retry(error.detail)
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)


class Link:
    """Sends calls and repeats them while the API is away, for `patience_s` at most.

    Repeating is safe: reads change nothing, and all else carries an idempotency key.
    `on_retry` is told why before each pause. Not for several threads at once.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = PATIENCE_S,
        ca_file: str | None = None,
        on_retry: Callable[[str], None] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise NotConfigured(
                f"XCE_API_URL is {url!r}; it has to look like http://127.0.0.1:8420"
            )
        self._parts = parts
        self._token = token
        self._patience_s = patience_s
        self._context = trusting(ca_file) if parts.scheme == "https" else None
        self._on_retry = on_retry or _say_nothing
        self._conn: http.client.HTTPConnection | None = None
        self.answered_at: datetime | None = None

    def patience(self, *, is_endless: bool = False) -> Patience:
        """For one call, or for one that goes on however long the API is away."""
        return Patience(None if is_endless else self._patience_s, self._on_retry)

    def get(self, path: str) -> Reply:
        """Raises Refused and Unavailable."""
        return self._call("GET", path, None, {})

    def send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """POST, PUT or DELETE under a key of its own. Raises Refused and Unavailable."""
        key = {"Idempotency-Key": os.urandom(16).hex(), "Content-Type": "application/json"}
        return self._call(method, path, body, key | headers)

    def lines(self, path: str, headers: dict[str, str], *, silence_s: float) -> Iterator[bytes]:
        """The lines of an answer that has no end, on a connection of its own, tried once.

        Ends when the other side ends it well. Raises Refused, and Unavailable, which no answer
        for `silence_s` means too.
        """
        conn = self._connection(silence_s)
        try:
            headers = {"Authorization": f"Bearer {self._token}", **headers}
            conn.request("GET", self._parts.path.rstrip("/") + path, None, headers)
            answer = conn.getresponse()
            if answer.status >= 400:
                raise _refusal(Reply(answer.status, answer.headers, answer.read()))
            yield from answer
        except LOST as error:
            raise self._lost(error) from error
        finally:
            conn.close()

    def stream(self, path: str) -> Streamed:
        """GET of what is read as it comes, over a connection of its own that the caller closes.

        May be called by several threads. Raises Refused and Unavailable.
        """
        patience = self.patience()
        while True:
            try:
                return self._try_stream(path)
            except Unavailable as error:
                patience.lose(error)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        headers = {"Authorization": f"Bearer {self._token}", **headers}
        patience = self.patience()
        while True:
            try:
                return self._try(method, path, body, headers)
            except Unavailable as error:
                patience.lose(error)

    def _try(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        if self._conn is None:
            self._conn = self._connection(TIMEOUT_S)
        conn = self._conn
        try:
            conn.request(method, self._parts.path.rstrip("/") + path, body, headers)
            answer = conn.getresponse()
            reply = Reply(answer.status, answer.headers, answer.read())
        except LOST as error:
            self.close()
            raise self._lost(error) from error
        self.answered_at = _date(answer.headers) or self.answered_at
        if reply.status >= 400:
            raise _refusal(reply)
        return reply

    def _try_stream(self, path: str) -> Streamed:
        conn = self._connection(TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {self._token}"}
            conn.request("GET", self._parts.path.rstrip("/") + path, None, headers)
            answer = conn.getresponse()
            if answer.status >= 400:
                raise _refusal(Reply(answer.status, answer.headers, answer.read()))
            _wait_for_ever(conn)
        except LOST as error:
            conn.close()
            raise self._lost(error) from error
        except ApiError:
            conn.close()
            raise
        return Streamed(conn, answer)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        place = (self._parts.hostname or "", self._parts.port)
        if self._context is not None:
            return http.client.HTTPSConnection(*place, timeout=timeout_s, context=self._context)
        return http.client.HTTPConnection(*place, timeout=timeout_s)

    def _lost(self, error: Exception) -> Unavailable:
        if isinstance(error, ssl.SSLCertVerificationError):
            return Untrusted(
                "unavailable",
                f"{self._parts.netloc} is not trusted: {error.verify_message}; name the "
                "certificate of its authority in XCE_CA_FILE, and its host as the certificate does",
            )
        detail = (
            f"no answer from {self._parts.netloc}: {_said(error)}; "
            "see that a controller runs there, or set XCE_API_URL to where one does"
        )
        return Unavailable("unavailable", detail)


def _date(headers: http.client.HTTPMessage) -> datetime | None:
    try:
        return parsedate_to_datetime(headers["Date"]).astimezone(UTC)
    except (TypeError, ValueError):
        return None


def _wait_for_ever(conn: http.client.HTTPConnection) -> None:
    """A stream may be silent for days; a peer that is gone is noticed by the kernel."""
    if conn.sock is None:
        return
    conn.sock.settimeout(None)
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            conn.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Trust in this authority alone, or in the system's. Raises NotConfigured."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise NotConfigured(
            f"XCE_CA_FILE is {ca_file!r}, which holds no certificates as PEM: {error}"
        ) from error


def _refusal(reply: Reply) -> Refused | Unavailable:
    # A caller that was too fast may go on in a moment; other 429 stay until something ends.
    is_passing = reply.status == 503 or (reply.status == 429 and "Retry-After" in reply.headers)
    kind = Unavailable if is_passing else Refused
    if reply.headers.get_content_type() != "application/problem+json":
        detail = f"the answer was no answer of xce's, with status {reply.status}; check XCE_API_URL"
        return kind(
            "unavailable" if reply.status == 503 else "not_xce", detail, status=reply.status
        )
    said: dict[str, Any] = decode(reply.body, dict)
    figures = {name: value for name, value in said.items() if name not in RESERVED}
    return kind(said["code"], said["detail"], status=reply.status, figures=figures)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _say_nothing(_: str) -> None:
    pass
