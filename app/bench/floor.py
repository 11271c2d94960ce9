"""What a grow and a shrink cannot do without, done with nothing around it (DESIGN §9)."""

import subprocess
import sys
from pathlib import Path

from app.bench.endpoint import Endpoint
from app.bench.stopwatch import now_ns
from app.db.connect import connect_now

SETUP = """
    create schema bench;
    create table bench.floor (id integer primary key, n bigint not null);
    insert into bench.floor values (1, 0)
"""
COMMIT = "update bench.floor set n = n + 1 where id = 1"
RING = "select pg_catalog.pg_notify('bench_floor', '')"


class Floor:
    """One GET of a constant, three durable one-row commits, two doorbells, and a process."""

    def __init__(self, endpoint: Endpoint, database_url: str) -> None:
        self._endpoint = endpoint
        self._writer = connect_now(database_url, application="xce bench")
        self._listener = connect_now(database_url, application="xce bench")
        self._writer.execute(SETUP)
        self._listener.execute("listen bench_floor")
        self._spawner = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("floor_spawner.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def grow_ns(self) -> int:
        """From the client's send to the child's stamp right before exec."""
        sent_ns = now_ns()
        self._ask_and_ring_twice()
        self._commit()
        return self._order(b"s") - sent_ns

    def shrink_ns(self) -> int:
        """From the client's send to the last commit; ends what `grow_ns` started."""
        sent_ns = now_ns()
        self._ask_and_ring_twice()
        self._order(b"r")
        self._commit()
        return now_ns() - sent_ns

    def close(self) -> None:
        assert self._spawner.stdin is not None
        assert self._spawner.stdout is not None
        self._spawner.stdin.close()
        self._spawner.wait()
        self._spawner.stdout.close()
        self._writer.close()
        self._listener.close()

    def _ask_and_ring_twice(self) -> None:
        self._endpoint.get("/healthz")
        for _ in range(2):
            self._commit()
            self._ring()

    def _commit(self) -> None:
        self._writer.execute(COMMIT)

    def _ring(self) -> None:
        self._writer.execute(RING)
        for _ in self._listener.notifies(timeout=5, stop_after=1):
            pass

    def _order(self, letter: bytes) -> int:
        assert self._spawner.stdin is not None
        assert self._spawner.stdout is not None
        self._spawner.stdin.write(letter)
        return int(self._spawner.stdout.readline())
