"""A small installation for tests of the API: users, hosts of straw, a leader that just places."""

import asyncio
import hashlib
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from app.api.app import ApiSettings, create_app
from app.daemons.api_server import ApiServer, Place, bind
from app.db.logins import CONTROLLER_GROUP, controller_login_name, make_login
from tests.support.cluster import Database
from tests.support.worker import StubWorker, add_host


@dataclass
class Reply:
    """What the API answered."""

    status: int
    headers: Any
    body: Any

    @property
    def code(self) -> str | None:
        return self.body.get("code") if isinstance(self.body, dict) else None


@dataclass
class Client:
    """Speaks HTTP as plainly as curl: the tests must not share a fault with our own client."""

    url: str
    token: str | None = None

    def get(self, path: str, **headers: str) -> Reply:
        return self.call("GET", path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        """`body` bytes go as they are; header names have underscores for dashes."""
        text = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return self.call("POST", path, text or b"", headers)

    def put(self, path: str, body: Any, **headers: str) -> Reply:
        return self.call("PUT", path, json.dumps(body).encode(), headers)

    def delete(self, path: str, **headers: str) -> Reply:
        return self.call("DELETE", path, None, headers)

    def call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            named.setdefault("Authorization", f"Bearer {self.token}")
        request = urllib.request.Request(self.url + path, data=body, headers=named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return _reply(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return _reply(error.code, error.headers, error.read())


def _reply(status: int, headers: Any, text: bytes) -> Reply:
    is_json = "json" in (headers.get("Content-Type") or "")
    return Reply(status, headers, json.loads(text) if is_json else text)


@dataclass
class World:
    """The API under uvicorn over a database of the test's own."""

    database: Database
    url: str
    workers: dict[str, StubWorker] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def user(self, name: str, *, is_operator: bool = False) -> Client:
        """A client with a token of the user's own."""
        if name not in self.tokens:
            self.tokens[name] = self.token(name, "operator" if is_operator else "owner")
        return Client(self.url, self.tokens[name])

    def token(self, name: str, role: str) -> str:
        token = secrets.token_urlsafe(32)
        with self.database.connect() as conn:
            row = conn.execute(
                "select xce.add_user(%s, %s, null)", (name, role == "operator")
            ).fetchone()
            assert row is not None
            digest = hashlib.sha256(token.encode()).digest()
            conn.execute("select xce.add_token(%s, %s, %s, null)", (row[0], role, digest))
        return token

    def hosts(self, *names: str, cpus: int = 4) -> list[StubWorker]:
        for name in names:
            worker = add_host(self.database, name, cpus=cpus)
            worker.register()
            worker.fetch()
            self.workers[name] = worker
        return [self.workers[name] for name in names]

    def place(self, *, hosts: list[str] | None = None) -> None:
        """Place every pending grow and start on the hosts in order, and stop every shrink."""
        with self.database.connect() as conn:
            conn.row_factory = dict_row
            epoch = conn.execute("select * from xce.take_lease('test')").fetchone()["epoch"]
            for request in conn.execute(
                "select r.id, r.kind, r.version, r.tasks_max, j.version as job_version, j.cpus"
                " from xce.resize_request r join xce.job j on j.id = r.job_id"
                " where r.state = 'pending' order by r.id"
            ).fetchall():
                decision = self._decision(conn, request, hosts)
                answers = conn.execute(
                    "select * from xce.apply_plan(%s, %s)",
                    (epoch, Jsonb({"decisions": [decision]})),
                ).fetchall()
                assert [answer["code"] for answer in answers] == [None], answers

    def start(self, job_id: int, *, hosts: list[str] | None = None) -> None:
        """Place what is pending and let the workers report the job's tasks as running."""
        self.place(hosts=hosts)
        self.converge(job_id)

    def converge(self, job_id: int) -> None:
        for worker in self.workers.values():
            worker.stop_all(job_id)
            worker.start_all(job_id)

    def count(self, table: str) -> int:
        with self.database.connect() as conn:
            row = conn.execute(f"select count(*) from xce.{table}".encode()).fetchone()
            assert row is not None
            return int(row[0])

    def _decision(self, conn: Any, request: dict[str, Any], hosts: Any) -> dict[str, Any]:
        named = {"request_id": request["id"], "request_version": request["version"]}
        if request["kind"] == "shrink":
            return {"do": "stop"} | named
        left, parts = request["tasks_max"], []
        for host in conn.execute(
            "select id, name, cpus - cpus_used - cpus_held as free from xce.host"
            " where state = 'up' order by id"
        ).fetchall():
            fits = min(left, host["free"] // request["cpus"])
            if fits > 0 and (hosts is None or host["name"] in hosts):
                parts.append([host["id"], fits])
                left -= fits
        return {"do": "place", "job_version": request["job_version"], "hosts": parts} | {
            "commit": True,
            **named,
        }


@contextmanager
def running_world(database: Database, folder: Path, **settings: Any) -> Iterator[World]:
    """The API with the login of a controller: what that may not do shows here."""
    with database.connect() as conn:
        login = make_login(
            conn,
            controller_login_name(database.name),
            group=CONTROLLER_GROUP,
            url=database.url,
            passfile=folder / "controller.passfile",
        )
    with running_api(login.url, **settings) as url:
        world = World(database, url)
        try:
            yield world
        finally:
            for worker in world.workers.values():
                worker.__exit__()


@contextmanager
def running_api(database_url: str, **settings: Any) -> Iterator[str]:
    """The API as another process would see it, in a thread with its own loop."""
    app = create_app(ApiSettings(database_url=database_url, **settings))
    place = Place("127.0.0.1", 0)
    listening = bind(place)
    server = ApiServer(app, place)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.run_on(listening)), name="api", daemon=True
    )
    port = listening.getsockname()[1]
    thread.start()
    try:
        deadline = time.monotonic() + 10
        while not server.started:
            assert thread.is_alive(), "the API did not start"
            assert time.monotonic() < deadline, "the API did not start in time"
            time.sleep(0.005)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the API does not stop"
