"""One visit at a worker's port: TLS to exactly the certificate that the worker registered."""

import asyncio
import contextlib
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from app.worker.tickets import LINE_BYTES_MAX, Ask, Door, Told, split_address

CONNECT_S = 5.0
#: The worker asks the database about the ticket before it answers.
ANSWER_S = 10.0
#: The most that is read ahead of a slow client is twice this.
AHEAD_BYTES = 256 * 1024
CLOSE_S = 1.0


class WorkerAwayError(Exception):
    """The worker did not answer, or somebody else did; the message says what happened."""


@dataclass(frozen=True)
class Visited:
    """What the worker told, and what follows it."""

    told: Told
    reader: asyncio.StreamReader


@asynccontextmanager
async def visit(door: Door, ask: Ask) -> AsyncIterator[Visited]:
    """Show the ticket in `ask`; hangs up in the end. Raises WorkerAwayError."""
    reader, writer = await _connected(door)
    try:
        yield Visited(await _told(reader, writer, ask), reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await writer.wait_closed()


async def _connected(door: Door) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        host, port = split_address(door.address)
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=_context(), server_hostname="", limit=AHEAD_BYTES
            )
    except (OSError, ValueError, TimeoutError) as error:
        raise WorkerAwayError(str(error) or "no answer") from error
    if not _is_pinned(writer, door.fingerprint):
        # Before anything was said: whoever that is learns no ticket.
        writer.transport.abort()
        raise WorkerAwayError("another certificate than the one it registered")
    return reader, writer


def _is_pinned(writer: asyncio.StreamWriter, fingerprint: str) -> bool:
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return hmac.compare_digest(hashlib.sha256(shown or b"").hexdigest(), fingerprint)


def _context() -> ssl.SSLContext:
    """No authority vouches for a worker, and it has no name: its one certificate is compared."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ask: Ask) -> Told:
    try:
        async with asyncio.timeout(ANSWER_S):
            writer.write(msgspec.json.encode(ask) + b"\n")
            await writer.drain()
            line = await reader.readuntil(b"\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise WorkerAwayError(f"no answer: {error}") from error
    try:
        return _TOLD.decode(line[:LINE_BYTES_MAX])
    except msgspec.MsgspecError as error:
        raise WorkerAwayError(f"an answer that is none: {error}") from error


_TOLD = msgspec.json.Decoder(Told)
