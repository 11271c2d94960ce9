"""A link in memory: it keeps rows as the database would, and can be cut."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from app.worker.reconcile import Key

Cut = Literal["", "call", "answer"]


@dataclass
class Row:
    """A task; `heard` are the reports that moved it, `old_news` those that did not."""

    launch: dict[str, Any]
    state: str = "assigned"
    grace_s: float = 5.0
    fence: str = "stop"
    heard: list[dict[str, Any]] = field(default_factory=list)
    old_news: list[dict[str, Any]] = field(default_factory=list)

    @property
    def end(self) -> dict[str, Any]:
        """The report that ended it."""
        assert self.state == "ended"
        return self.heard[-1]

    @property
    def events(self) -> list[str]:
        return [report["event"] for report in self.heard]


class MemoryLink:
    """What a host's worker may see of a database. `cut` loses the call, or only the answer."""

    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.rows: dict[Key, Row] = {}
        self.incarnation = 0
        self.is_up = False
        self.cut: Cut = ""
        self.fence_s = 300.0
        self.told_fence_s: float | None = None
        self.heartbeat_s = 5.0
        self.is_heartbeat = True
        self.is_paused = False
        self.hangs = False
        self.fetches = 0
        self.asked_in_full: list[bool] = []
        #: Ids that are said to run, of tasks that were never told.
        self.unknown: set[int] = set()
        self.moved = asyncio.Event()
        self.door: tuple[str, str] | None = None
        #: What each valid ticket is good for, by its hash.
        self.tickets: dict[bytes, dict[str, Any]] = {}
        self.redeemed = 0
        self.sizes_mib: dict[str, float] = {}

    def add(self, *command: str, key: Key | None = None, **launch: Any) -> Row:
        """An assigned task, and the bell."""
        defaults = {"env": {}, "host": "h1", "cpus": 1, "mem_mib": 64, "gpus": 0}
        row = Row({"command": list(command), **defaults, **launch})
        self.rows[key or Key(1, 1, len(self.rows))] = row
        self.bell.set()
        return row

    def stop(self, row: Row, *, grace_s: float = 5.0) -> None:
        row.state, row.grace_s = "stopping", grace_s
        self.bell.set()

    async def until(self, row: Row, state: str) -> Row:
        """Wait until the worker's reports have moved the row there."""
        while row.state != state:
            self.moved.clear()
            await self.moved.wait()
        return row

    # The Link protocol --------------------------------------------------------------------

    async def register(
        self,
        boot_id: str,
        version: str,
        live: bytes,
        *,
        folder: str,
        door: tuple[str, str] | None = None,
    ) -> bytes:
        self._lose("call")
        self.door = door
        self.incarnation += 1
        keep = [
            {name: said[name] for name in ("job_id", "attempt", "index")}
            for said in msgspec.json.decode(live)
            if self._is_open(said)
        ]
        self._lose("answer")
        terms = {"host_id": 1, "host": "h1", "incarnation": self.incarnation, "keep": keep}
        return msgspec.json.encode(terms)

    async def fetch(
        self, incarnation: int, *, is_clear: bool, fence_s: float | None, is_full: bool
    ) -> bytes:
        self._lose("call")
        if incarnation != self.incarnation:
            return b'{"stale":true}'
        self.fetches += 1
        self.is_up = self.is_up or is_clear
        for row in self.rows.values():
            if row.state == "assigned":
                row.state = "starting"
        self._lose("answer")
        self.asked_in_full.append(is_full)
        named = [(i, key, row) for i, (key, row) in enumerate(self.rows.items(), start=1)]
        briefly = set() if is_full else {i for i, _, row in named if row.state == "running"}
        tasks = [
            self._task(i, key, row)
            for i, key, row in named
            if row.state != "ended" and i not in briefly
        ]
        self.told_fence_s = fence_s
        answer = {"stale": False, "is_heartbeat": self.is_heartbeat, "fence_s": self.fence_s}
        answer |= {"heartbeat_s": self.heartbeat_s, "poll_s": 5.0, "is_paused": self.is_paused}
        answer |= self.sizes_mib
        if self.is_paused:
            return msgspec.json.encode({**answer, "tasks": []})
        running = [] if is_full else sorted(briefly | self.unknown)
        return msgspec.json.encode({**answer, "tasks": tasks, "running": running})

    async def report(self, incarnation: int, reports: bytes) -> bytes:
        self._lose("call")
        if self.hangs:
            self.moved.set()
            await asyncio.Event().wait()
        if incarnation != self.incarnation:
            return b'{"stale":true}'
        for report in msgspec.json.decode(reports):
            self._record(report)
        self.moved.set()
        self._lose("answer")
        return b'{"stale":false,"accepted":0,"old_news":0}'

    async def redeem(self, incarnation: int, sha256: bytes) -> bytes | None:
        self.redeemed += 1
        ticket = self.tickets.pop(sha256, None)
        return None if ticket is None else msgspec.json.encode(ticket)

    # ---------------------------------------------------------------------------------------

    def _lose(self, what: Cut) -> None:
        if self.cut == what:
            raise ConnectionError(f"the {what} was lost")

    def _is_open(self, said: dict[str, Any]) -> bool:
        row = self.rows.get(_key(said))
        return row is not None and row.state in ("starting", "running", "stopping")

    def _record(self, report: dict[str, Any]) -> None:
        row = self.rows.get(_key(report))
        if row is None:
            return
        if row.state == "ended" or (report["event"] == "up" and row.state != "starting"):
            row.old_news.append(report)
            return
        row.heard.append(report)
        row.state = "running" if report["event"] == "up" else "ended"

    def _task(self, task_id: int, key: Key, row: Row) -> dict[str, Any]:
        task = {**_names(key), "task_id": task_id, "state": row.state}
        task |= {"grace_s": row.grace_s, "fence": row.fence}
        task |= {name: row.launch.get(name) for name in ("stdout", "stderr")}
        return task | ({"launch": row.launch} if row.state == "starting" else {})


def _key(said: dict[str, Any]) -> Key:
    return Key(said["job_id"], said["attempt"], said["index"])


def _names(key: Key) -> dict[str, int]:
    return {"job_id": key.job_id, "attempt": key.attempt, "index": key.index}
