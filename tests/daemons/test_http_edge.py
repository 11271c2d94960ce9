"""What a client may send and how long it may take, on the server's own sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import uvicorn

from app.daemons import http_edge
from app.daemons.http_edge import HEAD_BYTES_MAX, BoundedProtocol

LIMIT_S = 10.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


class Echo:
    """An application that reads all and says how much; `ended` tells how each call ended."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size = 0
        while (message := await receive())["type"] == "http.request":
            size += len(message["body"])
            if not message["more_body"]:
                break
        self.ended.put_nowait(message["type"])
        body = str(size).encode()
        length = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest_asyncio.fixture
async def port(echo: Echo) -> AsyncIterator[int]:
    config = uvicorn.Config(
        echo, port=0, http=BoundedProtocol, ws="none", lifespan="off", log_config=None
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await server.shutdown()


async def said(port: int, *parts: bytes, ends: bool = False) -> bytes:
    """All that the server answers until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if ends:
            writer.write_eof()
        async with asyncio.timeout(LIMIT_S):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def code(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    told = json.loads(body)
    assert int(head.split()[1]) == told["status"]
    return told["status"], told["code"]


async def test_a_request_is_served_and_the_connection_kept(port: int) -> None:
    answer = await said(port, GET + b"\r\n", GET + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("ends", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [HEAD_BYTES_MAX + 1, 1 << 20, 80 << 20])
async def test_a_head_that_is_too_large_is_refused(port: int, size: int, ends: bytes) -> None:
    """A sender that does not stop is reset and may miss the answer, as with any server."""
    answer = await said(port, GET + b"X: ", b"y" * size + ends)
    assert not answer or code(answer) == (431, "head_too_large")
    if size < 1 << 20:
        assert answer


async def test_many_small_headers_count_together(port: int) -> None:
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(4_000))
    assert code(await said(port, GET + lines + b"\r\n")) == (431, "head_too_large")


async def test_a_head_within_the_limit_is_served(port: int) -> None:
    answer = await said(port, GET + b"Connection: close\r\nX: " + b"y" * 31_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_second_head_on_a_connection_is_bounded_too(port: int) -> None:
    """Sent before the first was answered; that one is."""
    answer = await said(port, GET + b"\r\n" + GET + b"X: " + b"y" * 80_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_what_is_not_http_is_told_as_a_problem(port: int) -> None:
    assert code(await said(port, b"\x00\x01\x02\r\n\r\n")) == (400, "not_http")


@pytest.mark.parametrize("parts", [[], [b"GE"], [GET], [GET + b"X: y"]])
async def test_a_head_has_to_come_in_time(
    port: int, parts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_edge, "HEAD_S", 0.1)
    answer = await said(port, *parts)
    if parts:
        assert code(answer) == (408, "too_slow")
    else:
        assert answer == b""


async def test_a_body_has_to_come_in_time_and_its_call_ends(
    port: int, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_edge, "BODY_S", 0.1)
    assert code(await said(port, POST + b"12345")) == (408, "too_slow")
    async with asyncio.timeout(LIMIT_S):
        assert await echo.ended.get() == "http.disconnect"


async def test_what_is_answered_slowly_is_not_cut_off(
    port: int, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_edge, "HEAD_S", 0.05)
    monkeypatch.setattr(http_edge, "BODY_S", 0.05)
    answered = asyncio.Event()
    serve = Echo.__call__

    async def slowly(self: Echo, scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        answered.set()
        await serve(self, scope, receive, send)

    monkeypatch.setattr(Echo, "__call__", slowly)
    answer = await said(port, GET + b"Connection: close\r\n\r\n")
    assert answered.is_set()
    assert answer.startswith(b"HTTP/1.1 200")
