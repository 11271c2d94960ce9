"""The address of a database: as libpq understands it, whole, and without a password."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.db.errors import translated

CONNECT_S = 5
#: What other programs need as well to come to the same place; the rest is this session's own.
LASTING = ("sslmode", "sslrootcert", "sslcrl", "sslcert", "sslkey", "gssencmode", "channel_binding",
           "target_session_attrs")  # fmt: skip


class AddressError(Exception):
    """The address of a database that is none, or may not be used like that; says what to do."""


def whole_url(url: str) -> str:
    """The same place, whatever the environment of who uses it: all that libpq took from this one.

    Connects once. The password stays where it is: in a passfile. Raises AddressError, Unavailable.
    """
    told = checked(url)
    with translated(), psycopg.connect(url, connect_timeout=CONNECT_S) as conn:
        place = {"host": conn.info.host, "port": str(conn.info.port), "dbname": conn.info.dbname}
        used = {
            option.keyword.decode(): option.val.decode()
            for option in conn.pgconn.info
            if option.val and option.val != option.compiled
        }
        user = conn.info.user
    told |= {name: value for name, value in used.items() if name in LASTING}
    passfile = told.pop("passfile", None) or os.environ.get("PGPASSFILE") or used.get("passfile")
    if "," in told.get("host", ""):
        # Whichever answered just now, the others may have to take its place.
        place = {name: told.get(name, place[name]) for name in place}
    for name in ("user", "service"):
        told.pop(name, None)
    given = {"passfile": str(Path(passfile).absolute())} if passfile else {}
    return url_of(user, {**given, **told, **place})


def place_of(url: str) -> str:
    """Where a whole address leads to, without who goes there."""
    told = conninfo_to_dict(url)
    return f"{told.get('host')}:{told.get('port')}/{told.get('dbname')}"


def checked(url: str) -> dict[str, str]:
    """The parts of an address. Raises AddressError for one with a password in it."""
    try:
        told = {name: str(value) for name, value in conninfo_to_dict(url).items() if value}
    except psycopg.ProgrammingError:
        # Its message repeats the address, and with that a password.
        raise AddressError(
            "that is no address of a database; one looks like "
            "postgresql://xce@db.example/xce?passfile=FILE"
        ) from None
    if "password" in told or "sslpassword" in told:
        raise AddressError(
            "there is a password in the address of the database, where everybody on this machine "
            "can read it: put it into a passfile of mode 0600, one line *:*:*:USER:PASSWORD, and "
            "name that with ?passfile= in the address or in PGPASSFILE; better change it, too"
        )
    return told


def url_of(user: str, told: Mapping[str, str]) -> str:
    """The parts as one address; hosts and ports may be lists with commas."""
    rest = {name: value for name, value in told.items() if name not in ("host", "port", "dbname")}
    hosts = told.get("host", "").split(",")
    ports = told.get("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = ",".join(
        f"{_host(h)}:{p}" if p else _host(h) for h, p in zip(hosts, ports, strict=True)
    )
    database = quote(told.get("dbname", ""), safe="")
    return f"postgresql://{quote(user, safe='')}@{places}/{database}?{urlencode(rest)}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else quote(host, safe="")
