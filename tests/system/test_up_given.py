"""`xce up --database-url`: a server that was there before, and a role that is no superuser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from app.db import binaries, embedded
from app.wire.jobs import JobSubmit
from tests.support.cluster import private_folder
from tests.system.processes import eventually, is_alive, processes_with, run, up

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(not binaries.available(), reason="there are no PostgreSQL programs here"),
]
PASSWORD = "a-secret-of-the-owner"
ROLE = "create role keeper_of_it login createrole password 'a-secret-of-the-owner'"


@contextmanager
def server(programs: binaries.Binaries) -> Iterator[embedded.Server]:
    with private_folder() as folder:
        # As root the server runs as somebody else, and Debian's programs insist on the whole path.
        folder.chmod(0o711)
        running = embedded.start(folder / "pg", fast=True, programs=programs)
        try:
            yield running
        finally:
            embedded.stop(running)


@pytest.fixture(scope="module")
def given() -> Iterator[embedded.Server]:
    with server(binaries.available()[0]) as running:
        yield running


def as_superuser(server: embedded.Server, *statements: LiteralString) -> None:
    with psycopg.connect(server.url, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)


def claims(server: embedded.Server) -> int:
    with psycopg.connect(server.url) as conn:
        held = "select count(*) from pg_locks where locktype = 'advisory' and classid = 7303"
        row = conn.execute(held).fetchone()
    return 0 if row is None else int(row[0])


def place(server: embedded.Server, tmp_path: Path, database: str) -> str:
    """The owner's way in, the password in a passfile."""
    passfile = tmp_path / "passfile"
    passfile.write_text(f"*:*:*:keeper_of_it:{PASSWORD}\n")
    passfile.chmod(0o600)
    return f"postgresql://keeper_of_it@127.0.0.1:{server.port}/{database}?passfile={passfile}"


@pytest.mark.parametrize("programs", binaries.available(), ids=lambda found: str(found.major))
def test_an_owner_who_may_create_roles_is_enough(
    programs: binaries.Binaries, tmp_path: Path
) -> None:
    with server(programs) as given:
        as_superuser(given, ROLE, "create database theirs owner keeper_of_it")
        url = place(given, tmp_path, "theirs")
        with up("--database-url", url, "--workers", "1", "--cpus", "2") as cluster:
            assert cluster.state["pids"]["postgres"] is None
            client = cluster.client()
            job = client.submit(JobSubmit(command=["sleep", "600"], max_tasks=2))
            eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
            grown = client.grow(job.id, 1)
            eventually(lambda: client.request(grown.id).state == "running", "a grow")
            cluster.check()
            assert not processes_with(PASSWORD)

            # What holds the hosts is a session: it is taken again when somebody ended it.
            as_superuser(
                given,
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name like 'xce up,%'",
            )
            eventually(lambda: claims(given) == 1, "the claim again")
            # Another folder on the same database: its hosts would have the same names.
            second = run("up", "--database-url", url, "--port", "0", "--json")
            assert second.returncode == 1
            assert f"process {cluster.process.pid}" in second.stderr
            assert "same names" in second.stderr
            assert client.job(job.id).running_tasks == 2
            assert cluster.stop() < 15
        assert is_alive(given.pid)
        assert not processes_with(str(cluster.folder))

        # Once it has stopped another folder may have the hosts.
        with up("--database-url", url, "--workers", "1", "--cpus", "2") as cluster:
            client = cluster.client()
            ended = client.job(job.id)
            assert (ended.state, ended.reason) == ("exited", "shutdown")
            again = client.submit(JobSubmit(command=["true"]))
            eventually(lambda: client.job(again.id).state == "done", "a job on the new folder")
            cluster.check()


def test_tasks_that_live_under_another_folder_are_not_taken_over(
    given: embedded.Server, data: Path, tmp_path: Path
) -> None:
    as_superuser(given, "create database shared")
    url = given.url.replace("/xce?", "/shared?")
    with up("--database-url", url, "--workers", "1", "--data", str(data)) as cluster:
        client = cluster.client()
        job = client.submit(JobSubmit(command=["sleep", "600"]))
        eventually(lambda: client.job(job.id).running_tasks == 1, "a running task")
        cluster.kill()
    other = run("up", "--database-url", url, "--data", str(tmp_path / "other"), "--port", "0")
    assert other.returncode == 1
    assert "h1 may live under another --data folder" in other.stderr
    elsewhere = run("up", "--data", str(data), "--port", "0")
    assert elsewhere.returncode == 1
    assert "belong to another database" in elsewhere.stderr
    with up("--database-url", url, "--workers", "1", "--data", str(data)) as cluster:
        assert cluster.client().job(job.id).running_tasks == 1
        cluster.check()


def test_what_the_role_lacks_is_told_all_at_once(given: embedded.Server, tmp_path: Path) -> None:
    as_superuser(given, "create role keeper_of_it login password 'a-secret-of-the-owner'")
    url = place(given, tmp_path, "xce")
    refused = run("up", "--database-url", url, "--port", "0", "--json")
    assert refused.returncode == 1
    assert 'alter role "keeper_of_it" createrole' in refused.stderr
    assert 'alter database "xce" owner to "keeper_of_it"' in refused.stderr
    with psycopg.connect(given.url) as conn:
        assert conn.execute("select to_regnamespace('xce')").fetchone() == (None,)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:a-secret-of-mine@127.0.0.1/xce",
        "host=127.0.0.1 dbname=xce password=a-secret-of-mine",
        "postgresql://me:a-secret-of-mine@[/xce",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_repeated(url: str) -> None:
    refused = run("up", "--database-url", url, "--port", "0", "--json")
    assert refused.returncode == 1
    assert "passfile" in refused.stderr
    assert "a-secret-of-mine" not in refused.stderr + refused.stdout


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/xce", "no address at all"])
def test_an_address_that_leads_nowhere_is_said(url: str) -> None:
    refused = run("up", "--database-url", url, "--port", "0", "--json")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
