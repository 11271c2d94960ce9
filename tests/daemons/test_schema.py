"""A database that this release may not run on: each program says so in one line and ends."""

from pathlib import Path

import pytest

from tests.support.cluster import Database
from tests.support.worker import add_host, login_url
from tests.system.processes import run

EDITED = "update xce.migration set sha256 = 'x' where name like '0002%'"
OLD = "delete from xce.migration where name = (select max(name) from xce.migration)"
NEW = "insert into xce.migration (name, sha256, is_breaking) values ('9999_x.sql', 'x', true)"
LATER = "insert into xce.migration (name, sha256, is_breaking) values ('9999_x.sql', 'x', false)"
NONE = "drop schema xce cascade"

SAYS = {
    EDITED: "was edited after the database applied it",
    OLD: "run `xce migrate`",
    NEW: "this release is too old for the database, which has 9999_x.sql",
    NONE: "run `xce migrate`",
}


def told(database: Database, *command: str) -> str:
    """What a program says on its last line as it refuses."""
    ended = run(*command, XCE_DATABASE_URL=database.url)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr.splitlines()[-1]


def spoil(database: Database, how: str) -> None:
    with database.connect() as conn:
        conn.execute(how.encode())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", SAYS)
def test_a_controller_refuses_a_schema_that_is_not_its_own(database: Database, how: str) -> None:
    spoil(database, how)
    said = told(database, "controller", "--port", "0")
    assert said.startswith("xce: ")
    assert SAYS[how] in said


@pytest.mark.timeout(60)
def test_a_worker_refuses_it_with_the_login_of_its_host(database: Database, tmp_path: Path) -> None:
    add_host(database, "h1")
    spoil(database, NEW)
    said = told(
        Database(database.name, login_url(database, "h1")),
        "worker",
        "--run-dir",
        str(tmp_path / "run"),
    )
    assert SAYS[NEW] in said
    assert not (tmp_path / "run" / "keeper.sock").exists()


def test_migrate_and_check_say_it_too(database: Database) -> None:
    spoil(database, EDITED)
    for command in ("migrate", "check"):
        assert SAYS[EDITED] in told(database, command)


def test_a_later_release_that_breaks_nothing_is_no_obstacle(database: Database) -> None:
    spoil(database, LATER)
    assert run("check", XCE_DATABASE_URL=database.url).stdout.startswith("ok (")
