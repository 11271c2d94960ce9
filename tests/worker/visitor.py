"""Knocks at a worker's port as plainly as can be: it shares no code with our own visitors."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Answer:
    """The first line of an answer, and the rest as it comes."""

    told: dict[str, Any]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        return await self.reader.read()

    async def until(self, text: bytes) -> bytes:
        return await self.reader.readuntil(text)


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


@contextlib.asynccontextmanager
async def knocking(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A TLS connection on which nothing was said yet."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context(), server_hostname=""
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def visiting(address: str, said: bytes | dict[str, Any]) -> AsyncIterator[Answer]:
    """Say one line and hear one."""
    async with knocking(address) as (reader, writer):
        writer.write(said if isinstance(said, bytes) else json.dumps(said).encode() + b"\n")
        line = await reader.readline()
        yield Answer(json.loads(line) if line else {}, reader, writer)
