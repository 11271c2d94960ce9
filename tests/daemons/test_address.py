"""The address of a given database, made whole for programs with another environment."""

from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from app.db.address import AddressError, checked, whole_url
from tests.support.cluster import Database


def parts(url: str) -> dict[str, str]:
    return {name: str(value) for name, value in conninfo_to_dict(url).items()}


def test_what_the_environment_said_is_in_it(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = parts(database.url)
    passfile = tmp_path / "pass"
    with psycopg.connect(database.url) as conn:
        passfile.write_text(f"*:*:*:{conn.info.user}:{conn.info.password}\n")
    passfile.chmod(0o600)
    for name, value in {
        "PGHOST": told["host"],
        "PGPORT": told["port"],
        "PGUSER": told["user"],
        "PGDATABASE": database.name,
        "PGPASSFILE": str(passfile),
        "PGSSLMODE": "allow",
    }.items():
        monkeypatch.setenv(name, value)
    whole = whole_url("postgresql://")
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSFILE", "PGSSLMODE"):
        monkeypatch.delenv(name)
    assert parts(whole) == {
        "host": told["host"],
        "port": told["port"],
        "user": told["user"],
        "dbname": database.name,
        "passfile": str(passfile),
        "sslmode": "allow",
    }
    with psycopg.connect(whole) as conn:
        assert conn.info.dbname == database.name
    # Made whole it stays as it is.
    assert whole_url(whole) == whole


def test_of_several_places_none_is_dropped(database: Database) -> None:
    told = parts(database.url)
    several = database.url.replace(
        f"{told['host']}:{told['port']}", f"127.0.0.1:1,{told['host']}:{told['port']}"
    )
    whole = parts(whole_url(several))
    assert whole["host"] == f"127.0.0.1,{told['host']}"
    assert whole["port"] == f"1,{told['port']}"


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@h/x", "dbname=x sslpassword=secret", "postgresql://a:secret@[/"]
)
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(AddressError, match="passfile") as refused:
        checked(url)
    assert "secret" not in str(refused.value)
