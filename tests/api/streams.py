"""A reader of server-sent events, as plain as the standard: it must not share a fault with ours."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.api.world import Client
from tests.support.cluster import Database
from tests.system.processes import eventually

#: Rows of history as a transaction writes them; `reason` tells them apart.
WRITE = """
    insert into xce.history (lifecycle, row_id, version, at, job_id, source, event, target,
                             actor, reason, era)
    select 'job', %(job)s, 1000000 + nextval('xce.history_id_seq'), clock_timestamp(), %(job)s,
           e.source, e.event, e.target, 'controller', r.reason, 1
      from unnest(%(reasons)s::text[]) as r (reason)
     cross join (select e.source, e.event, e.target from xce.edge e
                  where e.lifecycle = 'job' order by 1, 2 limit 1) e
"""

IS_OVER = "select %s::xid8 < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())"
LISTENING = """
    select count(*) from pg_catalog.pg_stat_activity
     where datname = pg_catalog.current_database()
       and application_name = 'xce listener' and query like 'listen%'
"""


def write(database: Database, job_id: int, *reasons: str) -> None:
    """One transaction of events of this job."""
    with database.connect() as conn:
        conn.execute(WRITE, {"job": job_id, "reasons": list(reasons)})


def ring(database: Database) -> None:
    with database.connect() as conn:
        conn.execute("select pg_catalog.pg_notify('xce_watch', '')")


def settled(database: Database) -> None:
    """Wait until the feed shows all that was committed: any writer in the cluster holds it back."""
    with database.connect() as conn:
        row = conn.execute("select pg_catalog.pg_current_xact_id()").fetchone()
        assert row is not None
        eventually(lambda: conn.execute(IS_OVER, row).fetchone() == (True,), "older ones' end")


def listeners(database: Database) -> int:
    """How many fan-outs listen."""
    with database.connect() as conn:
        row = conn.execute(LISTENING).fetchone()
        assert row is not None
        return int(row[0])


def page_all(client: Client, after: str = "", limit: int = 7) -> list[dict[str, Any]]:
    """Every event after a cursor, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        query = f"limit={limit}" + (f"&after={after}" if after else "")
        page = client.get(f"/v1/events?{query}").body
        found += page["items"]
        if page["next"] == after:
            return found
        after = page["next"]


@dataclass
class Stream:
    """An open answer. `events` and `comments` are what was read up to now."""

    sock: socket.socket
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    comments: int = 0
    text: bytes = b""
    _raw: bytes = b""

    def read_until(self, is_enough: Any, *, within_s: float = 10.0) -> bool:
        """Read until that is true of this stream; False when the answer ended first."""
        self.sock.settimeout(within_s)
        while not is_enough(self):
            data = self.sock.recv(65536)
            if not data:
                return False
            self._raw += data
            self._parse()
        return True

    def take(self, count: int, *, within_s: float = 10.0) -> list[dict[str, Any]]:
        """The first `count` events."""
        assert self.read_until(lambda s: len(s.events) >= count, within_s=within_s)
        return self.events

    def read_to_end(self, *, within_s: float = 10.0) -> None:
        assert not self.read_until(lambda _: False, within_s=within_s)

    def _parse(self) -> None:
        if not self.status:
            head, separator, rest = self._raw.partition(b"\r\n\r\n")
            if not separator:
                return
            first, *lines = head.decode().split("\r\n")
            self.status = int(first.split()[1])
            self.headers = {n.lower(): v for n, v in (line.split(": ", 1) for line in lines)}
            self._raw = rest
        if self.headers.get("transfer-encoding") == "chunked":
            self._unchunk()
        *blocks, self.text = self.text.split(b"\n\n")
        for block in blocks:
            self._block(block)

    def _unchunk(self) -> None:
        while b"\r\n" in self._raw:
            size, _, rest = self._raw.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            self.text += rest[:length]
            self._raw = rest[length + 2 :]

    def _block(self, block: bytes) -> None:
        if block.startswith(b":"):
            self.comments += 1
            return
        told = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        event = json.loads(told["data"])
        assert (told["id"], told["event"]) == (event["cursor"], event["kind"])
        self.events.append(event)


@contextmanager
def streaming(
    client: Client,
    query: str = "follow=true",
    *,
    receive_bytes: int | None = None,
    **headers: str,
) -> Iterator[Stream]:
    """An open stream whose head has been read."""
    parts = urlsplit(client.url)
    with socket.socket() as sock:
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.connect((parts.hostname, parts.port))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Host": "xce", "Authorization": f"Bearer {client.token}"}
        lines = [f"{name}: {value}" for name, value in named.items()]
        sock.sendall("\r\n".join([f"GET /v1/events?{query} HTTP/1.1", *lines, "", ""]).encode())
        stream = Stream(sock)
        stream.read_until(lambda s: s.status)
        yield stream
