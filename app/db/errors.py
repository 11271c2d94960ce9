"""Translates PostgreSQL's errors into ours, by SQLSTATE; nobody parses a message."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg


class DatabaseError(Exception):
    """Something that the database said no to, or did not say at all."""


class Unavailable(DatabaseError):
    """The database is away or gave up for a passing reason; a commit may hold all the same."""


class NotFound(DatabaseError):
    """RZ404: there is no such row."""


class VersionMoved(DatabaseError):
    """RZ409: the row was changed since it was read."""


class NoSuchEdge(DatabaseError):
    """RZ422: the lifecycle has no such edge from this state."""


class WrongActor(DatabaseError):
    """RZ403: this actor may not fire the edge, or this login is no host's."""


class EpochOver(DatabaseError):
    """RZ410: another controller leads by now."""


class CapacityGone(DatabaseError):
    """RZ507: the room is taken."""


class BadAddress(DatabaseError):
    """The address of the database cannot be read; what it says may hold a password."""


class Fault(DatabaseError):
    """The database refused what a program of ours may never ask: a broken constraint, bad SQL."""


BY_SQLSTATE: dict[str, type[DatabaseError]] = {
    "RZ403": WrongActor,
    "RZ404": NotFound,
    "RZ409": VersionMoved,
    "RZ410": EpochOver,
    "RZ422": NoSuchEdge,
    "RZ507": CapacityGone,
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise our exceptions where psycopg raises its own; may be held around an await."""
    try:
        yield
    except psycopg.Error as error:
        # Not from it: a log would show that too, and its DETAIL quotes rows, environments and all.
        raise translation(error) from None


def translation(error: psycopg.Error) -> DatabaseError:
    """Our exception for one of psycopg's."""
    ours = BY_SQLSTATE.get(error.sqlstate or "")
    if ours is not None:
        return ours(error.diag.message_primary or str(error))
    # Operational errors include lost connections, shutdowns, timeouts and deadlocks: all of them
    # pass. An interface error is a connection that was found closed.
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(str(error).strip() or type(error).__name__)
    return Fault(fault_told(error))


def fault_told(error: psycopg.Error) -> str:
    """What broke and where, without what PostgreSQL quotes of the data: that may be secret."""
    diag = error.diag
    if diag.message_primary is None:
        return f"{type(error).__name__}: {error}"
    names = [name for name in (diag.table_name, diag.constraint_name) if name]
    where = [line for line in (diag.context or "").splitlines() if line.startswith("PL/pgSQL")]
    return ", ".join([f"{error.sqlstate}: {diag.message_primary}", *names, *where])
