"""The worker's port: what a ticket is good for there, and what everybody else gets."""

import asyncio
import base64
import contextlib
import hashlib
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from app.daemons.worker import WorkerOptions, advertised
from app.worker import port, sweep
from app.worker.certificate import ensure_certificate, fingerprint
from app.worker.outputs import OutputFile
from app.worker.port import PortError, listen
from app.worker.reconcile import Key
from tests.worker.conftest import Host
from tests.worker.link import MemoryLink, Row
from tests.worker.visitor import context, knocking, visiting

WAIT_FOR_GO = "until test -e go; do sleep 0.01; done"


def ticket(link: MemoryLink, key: Key, state: str = "running", **members: Any) -> str:
    """A ticket for a task, as its visitor shows it."""
    secret = secrets.token_bytes(32)
    named = {"job_id": key.job_id, "attempt": key.attempt, "index": key.index, "host": "h1"}
    good_for = {"purpose": "output", "state": state, **named, **members}
    link.tickets[hashlib.sha256(secret).digest()] = good_for
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def ask(link: MemoryLink, state: str = "running", **members: Any) -> dict[str, Any]:
    shown = ticket(link, Key(1, 1, 0), state)
    return {"purpose": "output", "ticket": shown} | members


async def address(link: MemoryLink) -> str:
    while link.door is None:
        await asyncio.sleep(0.01)
    return link.door[0]


async def read(link: MemoryLink, **members: Any) -> tuple[dict[str, Any], bytes]:
    async with visiting(await address(link), ask(link, **members)) as answer:
        return answer.told, await answer.rest()


@pytest.fixture
async def written(host: Host, link: MemoryLink) -> Row:
    """A task that has written a little and ended."""
    row = link.add("sh", "-c", "printf 0123456789; echo oops >&2")
    return await link.until(row, "ended")


async def test_the_end_of_a_file_is_sent_with_its_true_offsets(
    written: Row, link: MemoryLink
) -> None:
    told, sent = await read(link, state="ended")
    assert (told, sent) == ({"ok": True, "size": 10, "length": 10}, b"0123456789")
    told, sent = await read(link, state="ended", offset=7, limit=2)
    assert (told, sent) == ({"ok": True, "start": 7, "size": 10, "length": 2}, b"78")
    told, sent = await read(link, state="ended", offset=-1)
    assert (told["start"], sent) == (9, b"9")
    told, sent = await read(link, state="ended", offset=99)
    assert (told["start"], told["length"], sent) == (10, 0, b"")
    assert (await read(link, state="ended", stream="stderr"))[1] == b"oops\n"


async def test_a_file_that_was_removed_is_gone(written: Row, link: MemoryLink, host: Host) -> None:
    (host.run_dir / "jobs/1/1.1.0.out").unlink()
    told, sent = await read(link, state="ended")
    assert (told["ok"], told["code"], sent) == (False, "gone", b"")


async def test_a_task_is_followed_until_its_processes_have_ended(
    host: Host, link: MemoryLink
) -> None:
    row = link.add("sh", "-c", f"echo one; {WAIT_FOR_GO}; echo two")
    await link.until(row, "running")
    async with visiting(await address(link), ask(link, follow=True)) as answer:
        assert answer.told["ok"]
        assert "length" not in answer.told
        assert await answer.until(b"\n") == b"one\n"
        (host.run_dir / "jobs/1/go").touch()
        assert await answer.rest() == b"two\n"


async def test_a_follower_waits_for_a_task_that_has_not_started(
    host: Host, link: MemoryLink
) -> None:
    said = ask(link, "starting", follow=True)
    async with visiting(await address(link), said) as answer:
        assert answer.told == {"ok": True}
        link.add("sh", "-c", f"echo here; {WAIT_FOR_GO}")
        assert await answer.until(b"\n") == b"here\n"
        (host.run_dir / "jobs/1/go").touch()
        assert await answer.rest() == b""
    told, sent = await read(link, state="starting", stream="stderr")
    assert (told["ok"], sent) == (True, b"")


async def test_a_limit_ends_following(host: Host, link: MemoryLink) -> None:
    row = link.add("sh", "-c", f"echo one; {WAIT_FOR_GO}")
    await link.until(row, "running")
    assert (await read(link, follow=True, limit=2))[1] == b"on"


async def test_a_ticket_is_good_once(written: Row, link: MemoryLink) -> None:
    said = ask(link, "ended")
    for is_good in (True, False):
        async with visiting(await address(link), said) as answer:
            assert answer.told["ok"] is is_good
    assert answer.told["code"] == "refused"
    assert await answer.rest() == b""


async def test_a_ticket_for_another_purpose_is_refused_and_used_up(
    written: Row, link: MemoryLink
) -> None:
    shown = ticket(link, Key(1, 1, 0), "ended", purpose="launch")
    said = {"purpose": "output", "ticket": shown}
    async with visiting(await address(link), said) as answer:
        assert answer.told["code"] == "refused"
    assert not link.tickets


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"{}\n",
        b'{"purpose":"launch","ticket":"x"}\n',
        b'{"purpose":"output","ticket":7}\n',
        b'{"purpose":"output","ticket":"x","offset":"1"}\n',
        b"\xff\xfe\n",
        b"x" * 100_000,
        b"[" * 4000 + b"\n",
    ],
)
async def test_what_is_no_ask_is_sent_away(host: Host, link: MemoryLink, said: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        async with visiting(await address(link), said) as answer:
            assert answer.told.get("code", "malformed") == "malformed"
            assert await answer.rest() == b""
    assert link.redeemed == 0


@pytest.mark.parametrize("text", ["", "x", "A" * 42, "A" * 44, "é" * 43, "A" * 43 + "\n"])
async def test_what_cannot_be_a_ticket_costs_the_database_nothing(
    host: Host, link: MemoryLink, text: str
) -> None:
    said = {"purpose": "output", "ticket": text}
    async with visiting(await address(link), said) as answer:
        assert answer.told["code"] == "refused"
    assert link.redeemed == 0


async def test_visitors_who_say_nothing_are_sent_away_and_hold_up_no_task(
    host: Host, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "KNOCK_S", 0.5)
    where = await address(link)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(port.KNOCKING_MAX - 1):
            await stack.enter_async_context(knocking(where))
        reader, writer = await asyncio.open_connection(*where.split(":"))
        stack.callback(writer.close)
        await link.until(link.add("true"), "ended")
        # The next one waits in the queue until one of them is sent away.
        assert (await read(link, state="ended"))[0]["ok"]
        assert await reader.read() == b""


async def test_too_many_visitors_are_told_so(
    host: Host, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "VISITS_MAX", 1)
    await link.until(link.add("sh", "-c", WAIT_FOR_GO), "running")
    async with visiting(await address(link), ask(link, follow=True)) as first:
        assert first.told["ok"]
        assert (await read(link))[0]["code"] == "busy"
    while (told := (await read(link))[0]).get("code") == "busy":
        await asyncio.sleep(0.01)
    assert told["ok"]


async def test_a_visitor_who_reads_nothing_is_not_read_ahead_for(
    host: Host, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64 * 2**20
    await link.until(link.add("sh", "-c", f"head -c {size} /dev/zero"), "ended")
    taken = [0]
    read_part = OutputFile.read

    def counted(self: OutputFile, bytes_max: int) -> bytes:
        part = read_part(self, bytes_max)
        taken[0] += len(part)
        return part

    monkeypatch.setattr(OutputFile, "read", counted)
    async with visiting(await address(link), ask(link, "ended")) as answer:
        before = -1
        while before != (before := taken[0]):
            await asyncio.sleep(0.3)
        assert 0 < taken[0] < size / 2
        got = 0
        while part := await answer.reader.read(2**20):
            got += len(part)
        assert got == size


async def test_the_next_worker_shows_the_same_certificate_and_goes_on(
    host: Host, link: MemoryLink
) -> None:
    await link.until(link.add("sh", "-c", f"echo one; {WAIT_FOR_GO}; echo two"), "running")
    await address(link)
    before = link.door
    async with visiting(await address(link), ask(link, follow=True)) as answer:
        assert await answer.until(b"\n") == b"one\n"
        await host.kill_worker()
        assert await answer.rest() == b""
    link.door = None
    host.start_worker()
    where = await address(link)
    assert before is not None
    assert link.door is not None
    assert link.door[1] == before[1]
    async with visiting(where, ask(link, follow=True, offset=4)) as answer:
        (host.run_dir / "jobs/1/go").touch()
        assert await answer.rest() == b"two\n"


async def test_output_above_the_limits_loses_its_oldest_part(
    host: Host, link: MemoryLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SIZES_EVERY_S", 0.1)
    monkeypatch.setattr(sweep, "SIZES_PAUSE_S", 0.05)
    link.sizes_mib = {"output_max_mib": 4, "output_keep_mib": 1}
    await host.kill_worker()
    host.start_worker()
    mib = "head -c 1048576 /dev/zero | tr '\\0' x"
    many = f"for i in 1 2 3 4 5 6 7 8; do {mib}; done"
    row = link.add("sh", "-c", f"{many}; {WAIT_FOR_GO}")
    await link.until(row, "running")
    # It may be trimmed before it is whole, and then again.
    while (told := (await read(link))[0]).get("start") != 4 * 2**20:
        await asyncio.sleep(0.05)
    assert told["size"] == 8 * 2**20
    (host.run_dir / "jobs/1/go").touch()
    await link.until(row, "ended")
    while (answer := await read(link, state="ended"))[0]["start"] == 4 * 2**20:
        await asyncio.sleep(0.05)
    told, sent = answer
    assert (told["size"], told["start"]) == (8 * 2**20, 7 * 2**20)
    assert sent == b"x" * 2**20


# -- the certificate and the address ------------------------------------------------------------


def test_a_certificate_is_private_and_made_again_only_when_it_is_broken(
    tmp_path: Path, certificate: Path
) -> None:
    copy = Path(shutil.copy(certificate, tmp_path))
    before = fingerprint(copy)
    assert fingerprint(ensure_certificate(tmp_path)) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    copy.write_text(copy.read_text()[:-200])
    assert fingerprint(ensure_certificate(tmp_path)) != before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [copy]


async def test_the_fingerprint_is_that_of_what_is_shown(host: Host, link: MemoryLink) -> None:
    async with knocking(await address(link)) as (_, writer):
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert link.door is not None
    assert hashlib.sha256(shown).hexdigest() == link.door[1]


async def test_older_tls_is_refused(host: Host, link: MemoryLink) -> None:
    import ssl

    old = context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    where = await address(link)
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await asyncio.open_connection(*where.split(":"), ssl=old, server_hostname="")


@pytest.mark.parametrize(
    ("listen_at", "advertise", "expected"),
    [
        ("127.0.0.1:0", None, "127.0.0.1:{port}"),
        ("127.0.0.1:0", "node1.example", "node1.example:{port}"),
        ("127.0.0.1:0", "node1.example:99", "node1.example:99"),
        ("127.0.0.1:0", "[2001:db8::1]:99", "[2001:db8::1]:99"),
        ("0.0.0.0:0", None, "{name}:{port}"),
    ],
)
def test_controllers_are_told_where_to_come(
    listen_at: str, advertise: str | None, expected: str, tmp_path: Path
) -> None:
    import socket

    listening = listen(listen_at)
    try:
        options = WorkerOptions(tmp_path, listen=listen_at, advertise=advertise)
        number = listening.getsockname()[1]
        told = expected.format(port=number, name=socket.gethostname())
        assert advertised(options, listening) == told
    finally:
        listening.close()


@pytest.mark.parametrize("place", ["nonsense", "127.0.0.1", "127.0.0.1:x", "192.0.2.1:1", ":1"])
def test_a_place_where_nobody_can_listen_is_refused(place: str) -> None:
    with pytest.raises(PortError, match="--listen"):
        listen(place)
