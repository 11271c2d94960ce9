"""One kept-alive connection to the API, as bare as a client can be."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class EndpointError(Exception):
    """The API answered with an error; `body` is its problem document."""

    def __init__(self, call: str, status: int, body: str) -> None:
        super().__init__(f"{call}: {status} {body}")
        self.body = body


class Endpoint:
    """Sends one request at a time and reads its answer."""

    def __init__(self, api: str, token_file: Path) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(api).netloc, timeout=30)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {
            "Authorization": f"Bearer {token_file.read_text().strip()}",
            "Content-Type": "application/json",
        }

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Any:
        return self._ask("POST", path, None if body is None else json.dumps(body), key)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, path: str, body: str | None, key: str | None = None) -> Any:
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise EndpointError(f"{method} {path}", answer.status, content.decode())
        is_json = "json" in (answer.getheader("Content-Type") or "")
        return json.loads(content) if is_json else content
