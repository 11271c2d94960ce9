"""What is said at a worker's port: one line asked, one line told, then bytes to the end.

Shared by the worker and whoever visits it. A purpose adds members to its own `Ask`; the envelope
(`purpose`, `ticket`) and the first line of the answer (`ok`, `code`) are the same for all.
"""

import base64
import hashlib
from typing import Literal, NamedTuple

import msgspec

LINE_BYTES_MAX = 4096
TICKET_BYTES = 32
Stream = Literal["stdout", "stderr"]


class Ask(msgspec.Struct, frozen=True, tag_field="purpose", kw_only=True):
    """What every visitor says first; `ticket` is the secret that the database knows by its hash."""

    ticket: str


class AskOutput(Ask, frozen=True, tag="output", kw_only=True):
    """Bytes of a task's output from `offset` on; a negative one counts from the end.

    With `follow` whatever is written is sent as it comes, until the task's processes have ended.
    """

    stream: Stream = "stdout"
    offset: int = 0
    limit: int | None = None
    follow: bool = False


#: Grows with each purpose.
Asked = AskOutput


class Told(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The first line of an answer; `code` says why there is nothing more: `refused` (the ticket),
    `malformed`, `gone` (the file), `busy` (too many visitors).

    `start` is the offset of the first byte to come, `size` that of the file now; `length` is how
    many bytes follow, None where they follow until the visitor or the worker hangs up.
    """

    ok: bool
    code: str = ""
    detail: str = ""
    start: int = 0
    size: int = 0
    length: int | None = None


class Ticket(msgspec.Struct, frozen=True):
    """What the database says that a ticket is good for."""

    purpose: str
    job_id: int
    attempt: int
    index: int
    state: str
    host: str
    stdout: str | None = None
    stderr: str | None = None


class Door(NamedTuple):
    """Where a worker is visited, and the SHA-256 (hex) of the certificate that it shows there."""

    address: str
    fingerprint: str


def ticket_text(secret: bytes) -> str:
    """A secret as it is written into an ask."""
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def ticket_sha256(text: str) -> bytes | None:
    """The hash by which the database knows a ticket; None for what cannot be one."""
    try:
        secret = base64.b64decode(text.encode("ascii") + b"=", altchars=b"-_", validate=True)
    except ValueError:
        return None
    return hashlib.sha256(secret).digest() if len(secret) == TICKET_BYTES else None


def split_address(address: str) -> tuple[str, int]:
    """`HOST:PORT` or `[V6]:PORT` in its parts. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
