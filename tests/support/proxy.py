"""A TCP proxy on loopback that can lose answers: the call arrived, and its sender never knows."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Forwards to one address. `answers_to_lose` counts down, one for each connection cut."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.answers_to_lose = 0
        self.lost = 0
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        # A blocked accept() wakes up for a shutdown, not for a close.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            for source, target, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._pump,
                    args=(source, target),
                    kwargs={"is_answer": is_answer},
                    daemon=True,
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self.answers_to_lose:
                    self.answers_to_lose -= 1
                    self.lost += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def proxy(upstream: tuple[str, int]) -> Iterator[Proxy]:
    running = Proxy(upstream)
    try:
        yield running
    finally:
        running.close()
