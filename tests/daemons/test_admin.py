"""The program `xce`, over a database of the test's own."""

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql

from app.admin.complaints import known_errors
from app.admin.main import NAMES, xce
from app.daemons.api_server import PlaceError
from app.db.administration import Refused
from app.db.logins import fitting, host_login_name, login_url
from tests.support.cluster import Database

Run = Callable[..., Result]


@pytest.fixture
def run(database: Database) -> Run:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(xce, arguments, env={"XCE_DATABASE_URL": database.url})

    return invoke


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_command_says_what_it_is_for() -> None:
    for name in NAMES:
        told = CliRunner().invoke(xce, [name, "--help"])
        assert told.exit_code == 0
        assert told.output.startswith("Usage:")


def test_without_a_database_url_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XCE_DATABASE_URL", raising=False)
    refused = CliRunner().invoke(xce, ["check"])
    assert isinstance(refused.exception, known_errors())
    assert "XCE_DATABASE_URL" in str(refused.exception)


def test_migrating_twice_does_nothing_the_second_time(run: Run) -> None:
    assert run("migrate").output == "nothing to do\n"


def test_check_prints_each_broken_row_and_exits_1(run: Run, database: Database) -> None:
    assert run("check").output.startswith("ok (")
    with database.connect() as conn:
        conn.execute("select xce.add_host('n1', 4, 10, 0, '{}', 'someone')")
        conn.execute("update xce.host set cpus_used = 1 where name = 'n1'")
    found = run("check")
    assert found.exit_code == 1
    assert any(line.startswith("R4") and "n1" in line for line in found.output.splitlines())


def test_a_token_is_written_to_a_private_file_and_its_digest_to_the_database(
    run: Run, database: Database, tmp_path: Path
) -> None:
    assert run("user", "add", "ada").exit_code == 0
    path = tmp_path / "ada.token"
    made = run("token", "create", "ada", "--days", "1", "--file", str(path))
    assert made.exit_code == 0
    token = path.read_text().strip()
    assert mode(path) == 0o600
    assert token not in made.output
    with database.connect() as conn:
        row = conn.execute("select id, sha256, role, expires_at from xce.token").fetchone()
    assert row is not None
    assert (row[1], row[2]) == (hashlib.sha256(token.encode()).digest(), "owner")
    assert row[3] is not None
    assert run("token", "revoke", str(row[0])).exit_code == 0
    assert run("token", "revoke", str(row[0])).exit_code == 2


def test_a_token_for_nobody_makes_no_file(run: Run, tmp_path: Path) -> None:
    refused = run("token", "create", "nobody", "--file", str(tmp_path / "t"))
    assert refused.exit_code == 2
    assert "xce user add nobody" in refused.output
    assert not list(tmp_path.iterdir())


def test_a_host_gets_a_login_that_may_only_be_a_worker(
    run: Run, database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "n1.passfile"
    options = ("--cpus", "4", "--mem-mib", "1000", "--label", "rack=r1", "--passfile", str(path))
    for _ in range(2):
        made = run("host", "add", "n1", *options)
        assert made.exit_code == 0, made.output
    assert mode(path) == 0o600
    assert path.read_text().strip().rpartition(":")[2] not in made.output
    login = host_login_name(database.name, "n1")
    url = login_url(database.url, login, path)
    assert url in made.output
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute("select xce.worker_register('boot', '1', '[]')").fetchone()
        assert row is not None
        assert row[0]["host"] == "n1"
        for table in ("xce.task", "xce.token", "xce.host"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(sql.SQL("select from {}").format(sql.Identifier(*table.split("."))))


def test_a_host_that_rest_made_gets_its_login_and_a_new_one_wants_a_size(
    run: Run, database: Database, tmp_path: Path
) -> None:
    options = ("--passfile", str(tmp_path / "n1.passfile"))
    refused = run("host", "add", "n1", *options)
    assert isinstance(refused.exception, Refused)
    assert "--cpus" in str(refused.exception)
    assert not list(tmp_path.iterdir())
    login = host_login_name(database.name, "n1")
    with database.connect() as conn:
        conn.execute("select xce.add_host('n1', 4, 10, 0, '{}', %s)", (login,))
    made = run("host", "add", "n1", *options)
    assert made.exit_code == 0, made.output
    url = login_url(database.url, login, tmp_path / "n1.passfile")
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute("select xce.worker_register('boot', '1', '[]')").fetchone()
    assert row is not None
    assert row[0]["host"] == "n1"


def test_settings_are_read_changed_and_refused(run: Run) -> None:
    assert run("setting", "lease_s").output == "lease_s 5\n"
    assert run("setting", "lease_s", "2.5").output == "lease_s 2.5\n"
    assert "silent_s 30\n" in run("setting").output
    for name, value in (("heartbeat_s", "11"), ("nonsense", "1"), ("poll_s", "0")):
        refused = run("setting", name, value)
        assert isinstance(refused.exception, Refused)
        assert name in str(refused.exception)
    assert "heartbeat_s 5\n" in run("setting").output


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_a_controller_does_not_send_tokens_in_the_clear(run: Run, host: str) -> None:
    refused = run("controller", "--host", host, "--port", "0")
    assert isinstance(refused.exception, PlaceError)
    assert "--tls-cert" in str(refused.exception)


def test_long_names_of_logins_stay_apart() -> None:
    long = "a" * 60
    first, second = (host_login_name("xce", f"{long}{n}") for n in "12")
    assert first != second
    assert max(len(first), len(second)) <= 63
    assert fitting("short") == "short"
