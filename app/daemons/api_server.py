"""Serves the API inside the controller's own loop, and leaves the signals to the controller."""

import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from litestar import Litestar

from app.api.app import end_streams
from app.daemons.http_edge import BoundedProtocol

DRAIN_S = 2
BACKLOG = 512


class PlaceError(Exception):
    """The API cannot be served there; the message says what to do."""


@dataclass(frozen=True)
class Place:
    """Where the API is served. `is_shared` lets a supervisor keep the port reserved meanwhile."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    is_shared: bool = False

    def check(self) -> None:
        """Refuse to send tokens over a network in the clear. Raises PlaceError."""
        self._check_papers()
        if self.certificate is None and not self.insecure and not is_loopback(self.host):
            raise PlaceError(
                f"{self.host} is reachable from other machines: give --tls-cert and --tls-key, "
                "or --insecure if something in front of it speaks TLS"
            )

    def _check_papers(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise PlaceError("a certificate and its key go together: give --tls-cert and --tls-key")
        if self.certificate is None:
            return
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # Without a word for a passphrase, or a key that has one would wait for a terminal.
            context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            raise PlaceError(
                f"{self.certificate} (--tls-cert) and {self.key} (--tls-key) are no certificate "
                f"and its key, as PEM without a passphrase: {error}"
            ) from error


class ApiServer(uvicorn.Server):
    """uvicorn without its own signal handling."""

    def __init__(self, app: Litestar, place: Place) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(
                app,
                ssl_certfile=place.certificate,
                ssl_keyfile=place.key,
                log_config=None,
                access_log=False,
                http=BoundedProtocol,
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=DRAIN_S,
            )
        )

    async def run_on(self, listening: socket.socket) -> None:
        """Serve until `should_exit` is set."""
        await self.serve(sockets=[listening])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Before it waits for connections, those that would stay open for ever are told to end."""
        end_streams(self._app)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(place: Place) -> socket.socket:
    """The listening socket. Raises PlaceError when the port is taken."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if place.is_shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((place.host, place.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise PlaceError(f"{place.host}, port {place.port}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
