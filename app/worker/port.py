"""The worker's one TLS port: a visitor shows a ticket, and what that is good for is done for it.

Everybody who reaches the port may knock. So few are let in at a time and not fast after each
other, and nothing here can fail, or hold up, the loop that converges the host.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from app.runtime.logs import logger
from app.worker.tickets import LINE_BYTES_MAX, Asked, Ticket, Told, split_address, ticket_sha256

#: Who has not shown a valid ticket yet; everybody else waits in the kernel's queue.
KNOCKING_MAX = 16
KNOCK_S = 5.0
VISITS_MAX = 128
BACKLOG = 64
#: 100 handshakes a second at most: each costs the loop most of a millisecond.
ACCEPT_PAUSE_S = 0.01
FAULT_PAUSE_S = 1.0
#: A visitor who takes nothing for so long is gone.
WRITE_S = 60.0
UNSENT_BYTES_MAX = 256 * 1024
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))

Redeem = Callable[[bytes], Awaitable[Ticket | None]]


class PortError(Exception):
    """The port cannot be opened there; the message says why."""


class Visit:
    """A visitor with a valid ticket: the answer goes out through it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def tell(self, told: Told) -> None:
        """The first line of the answer. Raises ConnectionError and TimeoutError, as `send` does."""
        await self.send(msgspec.json.encode(told) + b"\n")

    async def send(self, part: bytes) -> None:
        """Returns when the visitor has taken most of it, so that little is ever kept for it."""
        self._writer.write(part)
        async with asyncio.timeout(WRITE_S):
            await self._writer.drain()

    async def hung_up(self) -> None:
        """Returns when the visitor is gone. One that says more than its ask is sent away, too."""
        with contextlib.suppress(ConnectionError):
            await self._reader.read(1)


Serve = Callable[[Ticket, Any, Visit], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Purposes:
    """What tickets may be good for: how each is redeemed and served."""

    redeem: Redeem
    serve: Mapping[str, Serve]


def listen(place: str) -> socket.socket:
    """Raises PortError when `place` (ADDR:PORT) is taken or not this machine's."""
    try:
        found = socket.getaddrinfo(*split_address(place), type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
        listening = socket.socket(family, kind)
    except (OSError, ValueError) as error:
        raise PortError(f"--listen {place}: {error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise PortError(f"--listen {place}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


class Port:
    """Serves visitors; owns the listening socket."""

    def __init__(
        self, listening: socket.socket, context: ssl.SSLContext, purposes: Purposes
    ) -> None:
        self._listening = listening
        self._context = context
        self._purposes = purposes
        self._knocking = asyncio.Semaphore(KNOCKING_MAX)
        self._visits = 0
        self._visitors: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept for ever; in the end every visitor is sent away."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._knocking.acquire()
                try:
                    connection, _ = await loop.sock_accept(self._listening)
                except OSError as error:
                    # Out of descriptors, most likely: the tasks and the database go first.
                    self._knocking.release()
                    logger().warning("port_not_accepting", detail=str(error))
                    await asyncio.sleep(FAULT_PAUSE_S)
                    continue
                visitor = asyncio.create_task(self._receive(connection))
                self._visitors.add(visitor)
                visitor.add_done_callback(self._see_off)
                await asyncio.sleep(ACCEPT_PAUSE_S)
        finally:
            self._listening.close()
            for visitor in self._visitors:
                visitor.cancel()
            await asyncio.gather(*self._visitors, return_exceptions=True)

    async def _receive(self, connection: socket.socket) -> None:
        try:
            with contextlib.ExitStack() as knocking:
                knocking.callback(self._knocking.release)
                await self._talk(connection, knocking)
        except (OSError, TimeoutError) as error:
            logger().debug("visitor_lost", detail=str(error))

    def _see_off(self, visitor: asyncio.Task[None]) -> None:
        self._visitors.discard(visitor)
        # A fault in serving one visitor is no reason to leave the tasks alone.
        if not visitor.cancelled() and (error := visitor.exception()) is not None:
            logger().error("visitor_failed", exc_info=error)

    async def _talk(self, connection: socket.socket, knocking: contextlib.ExitStack) -> None:
        async with asyncio.timeout(KNOCK_S) as patience:
            reader, writer = await _secured(connection, self._context)
            try:
                visit = Visit(reader, writer)
                asked, told = await self._judge(reader)
                patience.reschedule(None)
                knocking.close()
                if asked is None:
                    await visit.tell(told)
                else:
                    await self._serve(*asked, visit)
            finally:
                await _closed(writer)

    async def _judge(
        self, reader: asyncio.StreamReader
    ) -> tuple[tuple[Ticket, Asked] | None, Told]:
        """The redeemed ticket with what was asked for it, or the refusal."""
        try:
            line = await reader.readuntil(b"\n")
            ask = _ASKED.decode(line)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.MsgspecError):
            return None, Told(ok=False, code="malformed", detail="that is no ask of xce's")
        sha256 = ticket_sha256(ask.ticket)
        try:
            ticket = None if sha256 is None else await self._purposes.redeem(sha256)
        except ConnectionError as error:
            return None, Told(ok=False, code="busy", detail=f"no word on the ticket: {error}")
        # The purpose is the ticket's: asking for another one has used it up for nothing.
        if ticket is None or ticket.purpose != ask.__struct_config__.tag:
            return None, Told(
                ok=False, code="refused", detail="the ticket is good for nothing here"
            )
        if self._visits >= VISITS_MAX:
            return None, Told(
                ok=False, code="busy", detail=f"{VISITS_MAX} visitors are here already"
            )
        return (ticket, ask), Told(ok=True)

    async def _serve(self, ticket: Ticket, ask: Asked, visit: Visit) -> None:
        self._visits += 1
        serving = asyncio.create_task(self._purposes.serve[ticket.purpose](ticket, ask, visit))
        leaving = asyncio.create_task(visit.hung_up())
        try:
            await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            self._visits -= 1
            for task in (serving, leaving):
                task.cancel()
            await asyncio.gather(serving, leaving, return_exceptions=True)


async def _secured(
    connection: socket.socket, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The connection as streams, behind a handshake. Raises OSError; closes it when it fails."""
    loop = asyncio.get_running_loop()
    for name, value in (("SO_KEEPALIVE", 1), *KEEPALIVE):
        level = socket.SOL_SOCKET if name == "SO_KEEPALIVE" else socket.IPPROTO_TCP
        if hasattr(socket, name):
            connection.setsockopt(level, getattr(socket, name), value)
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=context,
            ssl_handshake_timeout=KNOCK_S,
            ssl_shutdown_timeout=1.0,
        )
    except BaseException:
        connection.close()
        raise
    transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close after what was written is sent; whoever does not take it is cut off."""
    writer.close()
    try:
        async with asyncio.timeout(WRITE_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


_ASKED = msgspec.json.Decoder(Asked)
