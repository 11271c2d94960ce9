"""Keeps two supervisors from serving the same hosts of one database."""

import os
import select
import socket
import time

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from app.db import locks
from app.db.connect import connect_now
from app.db.errors import translated

KEY = 1
# A holder that was killed a moment ago: its server's process ends as soon as it notices.
PATIENCE_S = 3.0
POLL_S = 0.1
TAKE = "select pg_try_advisory_lock(%s, %s)"
HOLDER = """
    select coalesce(nullif(a.application_name, ''), 'one of the role ' || a.usename)
           || coalesce(' from ' || a.client_addr::text, '')
      from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'advisory'
       and l.classid = %s::oid
       and l.objid = %s::oid
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
"""
# Without these the server would hold the lock of a machine that is gone for two hours.
NOTICE_A_DEAD_PEER = """
    select set_config('tcp_keepalives_idle', '5', false),
           set_config('tcp_keepalives_interval', '2', false),
           set_config('tcp_keepalives_count', '3', false)
"""


class Claim:
    """A lock of a session of its own: held for as long as that session lives, and no longer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: Connection[TupleRow] | None = None

    def take(self) -> str | None:
        """None when it is ours, else who has it. Raises Unavailable."""
        self.close()
        name = f"xce up, process {os.getpid()} on {socket.gethostname()}"[:63]
        conn = connect_now(self._url, application=name)
        try:
            with translated():
                conn.execute(NOTICE_A_DEAD_PEER)
                holder = holder_after(conn, PATIENCE_S)
        except BaseException:
            conn.close()
            raise
        if holder is None:
            self._conn = conn
        else:
            conn.close()
        return holder

    def is_held(self) -> bool:
        """Whether the session lives, as far as this side can see without asking."""
        if self._conn is None:
            return False
        if not select.select([self._conn.pgconn.socket], [], [], 0)[0]:
            return True
        try:
            self._conn.pgconn.consume_input()
        except psycopg.OperationalError:
            self.close()
        return self._conn is not None

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def holder_after(conn: Connection[TupleRow], patience_s: float) -> str | None:
    give_up_at_s = time.monotonic() + patience_s
    while True:
        taken = conn.execute(TAKE, (locks.UP, KEY)).fetchone()
        if taken == (True,):
            return None
        if time.monotonic() > give_up_at_s:
            row = conn.execute(HOLDER, (locks.UP, KEY)).fetchone()
            return str(row[0]) if row is not None else "somebody"
        time.sleep(POLL_S)
