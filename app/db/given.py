"""A server that somebody else runs, used by one `xce up` at a time."""

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.db import locks
from app.db.connect import connect_now
from app.db.errors import translated

ALONE = "select pg_catalog.pg_try_advisory_lock(%s, 0)"


class DatabaseRefused(Exception):
    """The given database cannot be used; the message says why."""


class Held:
    """Keeps every other `xce up` off this database until it is closed.

    Their workers would stand for the same hosts. Raises DatabaseRefused, and Unavailable.
    """

    def __init__(self, url: str) -> None:
        check_url(url)
        self._conn = connect_now(url, application="xce up")
        with translated():
            row = self._conn.execute(ALONE, (locks.UP,)).fetchone()
        if row != (True,):
            self._conn.close()
            raise DatabaseRefused("another xce up uses this database: stop it, or give another")

    def close(self) -> None:
        self._conn.close()


def check_url(url: str) -> None:
    """Raises DatabaseRefused."""
    try:
        told = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Its message repeats the URL, and with that a password.
        raise DatabaseRefused(
            "that is no database URL; one looks like postgresql://xce@db.example/xce?passfile=FILE"
        ) from None
    if told.get("password"):
        raise DatabaseRefused(
            "every user of this machine can read a password in a command line: put it into a "
            "file of mode 0600 and say passfile= in the URL, or PGPASSFILE"
        )
