"""Reads what a caller sent: ids, query, headers and body; says exactly what is wrong with it."""

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, NoReturn, TypeVar, get_args

import msgspec
from litestar import Request

from app.api.problems import Refusal, not_found
from app.db.accounts import Caller
from app.wire.encoding import decode

Asked = Request[Any, Any, Any]
Shape = TypeVar("Shape")

ID_MAX = 2**63 - 1
LIMIT = 100
LIMIT_MAX = 1_000
KEY_BYTES_MAX = 255
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_UNKNOWN = re.compile(r"unknown field `(.*?)`", re.DOTALL)
_AT = re.compile(r" - at `(.*)`$", re.DOTALL)
_KEY_AT = re.compile(r" - at `key` in `(.*)`$", re.DOTALL)
_NAMES = re.compile(rb'"([^"\\]*)"\s*:')
_ETAG = re.compile(r'(?:W/)?"?(0|[1-9][0-9]{0,17})"?', re.ASCII)


def id_of(text: str, what: str) -> int:
    """An id of the path. A malformed one is refused like one that nobody has."""
    if not _ID.fullmatch(text) or int(text) > ID_MAX:
        raise not_found(what)
    return int(text)


async def body_of(request: Asked, shape: type[Shape]) -> tuple[Shape, str]:
    """The body as `shape`, and the hash of its bytes; no body at all is an empty object."""
    text = await request.body()
    sha256 = hashlib.sha256(text).hexdigest()
    try:
        body = decode(text or b"{}", shape)
        _refuse_doubles(text)
        return body, sha256
    except msgspec.ValidationError as error:
        _refuse_shape(str(error))
    except (msgspec.DecodeError, RecursionError) as error:
        _refuse_text(text, str(error))


def _refuse_doubles(text: bytes) -> None:
    """A member given twice is a mistake that a parser would hide: the last one wins."""
    names = _NAMES.findall(text)
    # Most bodies have no name twice anywhere, and are not parsed again.
    if len(set(names)) < len(names) or b"\\" in text:
        json.loads(text, object_pairs_hook=_without_doubles)


def _without_doubles(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        name = next(name for name in names if names.count(name) > 1)
        raise Refusal("invalid", f"the member {name!r} is given twice", path="$", member=name)
    return found


def _refuse_shape(message: str) -> NoReturn:
    where = _KEY_AT.search(message) or _AT.search(message)
    path = where.group(1) if where else "$"
    said = message[: where.start()] if where else message
    unknown = _UNKNOWN.search(said)
    if unknown:
        member = unknown.group(1)
        raise Refusal(
            "unknown_member",
            f"{path} has no member {member!r}; leave it out or correct its name",
            member=member,
            path=path,
        )
    raise Refusal("invalid", f"{said} at {path}", path=path)


def _refuse_text(text: bytes, said: str) -> NoReturn:
    # Python reads what programs write by mistake: NaN, infinities, half a surrogate pair. Such a
    # body is refused for its values, so that the sender learns more than "not JSON".
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal("malformed", f"the body is not JSON: {said}") from None
    raise Refusal(
        "invalid",
        "the body has NaN, an infinity or half a surrogate pair, which JSON does not know",
        path="$",
    )


class Query:
    """The query of a call; a name that the call does not know is refused, never ignored."""

    def __init__(self, request: Asked, *known: str) -> None:
        self._values = request.query_params
        for name in self._values:
            if name not in known:
                raise Refusal(
                    "unknown_member",
                    f"the query has no {name!r}; it may have {', '.join(known) or 'nothing'}",
                    member=name,
                    path="?",
                )

    def text(self, name: str) -> str | None:
        values = self._values.getall(name, [])
        if len(values) > 1:
            raise invalid_query(name, "give it once")
        # PostgreSQL takes no NUL; nothing that exists has one in its name.
        if values and "\x00" in values[0]:
            raise invalid_query(name, "a NUL is not allowed")
        return values[0] if values else None

    def flag(self, name: str) -> bool:
        return self.answer(name) or False

    def answer(self, name: str) -> bool | None:
        """True, false, or None where it was left open."""
        text = self.text(name)
        if text not in {None, "true", "false"}:
            raise invalid_query(name, "say true or false")
        return None if text is None else text == "true"

    def seconds(self, name: str, *, most: float) -> float:
        """A duration, `most` where none is given."""
        text = self.text(name)
        if text is None:
            return most
        if not _SECONDS.fullmatch(text) or float(text) > most:
            raise invalid_query(name, f"say 0 to {most:g} seconds")
        return float(text)

    def number(self, name: str, least: int, most: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
            raise invalid_query(name, f"say a whole number from {least} to {most}")
        return int(text)

    def choices(self, name: str, literal: Any) -> list[str] | None:
        """The values given, repeated or separated by commas; None where there are none."""
        given = [part for text in self._values.getall(name, []) for part in text.split(",")]
        known = get_args(literal)
        for value in given:
            if value not in known:
                raise invalid_query(name, f"say one of {', '.join(known)}")
        return given or None

    def choice(self, name: str, known: Sequence[str]) -> Any:
        """The one value given, of those known; None where there is none."""
        text = self.text(name)
        if text is not None and text not in known:
            raise invalid_query(name, f"say one of {', '.join(known)}")
        return text

    def day_or_moment(self, name: str) -> date | datetime | None:
        """A date, or a time in RFC 3339 with its offset."""
        text = self.text(name)
        if text is None or not _DATE.fullmatch(text):
            return self.moment(name)
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise invalid_query(name, "there is no such day") from None

    def moment(self, name: str) -> datetime | None:
        """A time in RFC 3339, with its offset."""
        text = self.text(name)
        if text is None:
            return None
        try:
            moment = msgspec.convert(text, datetime)
        except msgspec.ValidationError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise invalid_query(name, "give a time like 2026-12-01T08:00:00Z")
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            raise invalid_query(name, "that is out of the calendar") from None

    def limit(self) -> int:
        """How many items at most."""
        text = self.text("limit")
        if text is None:
            return LIMIT
        if not _ID.fullmatch(text) or int(text) > LIMIT_MAX:
            raise invalid_query("limit", f"say 1 to {LIMIT_MAX}")
        return int(text)

    def cursor(self) -> int:
        """The id after which the page begins."""
        text = self.text("cursor")
        if text is None:
            return 0
        if not _ID.fullmatch(text) or int(text) > ID_MAX:
            raise invalid_query("cursor", "give the `next` of the page before")
        return int(text)


def invalid_query(name: str, what: str) -> Refusal:
    return Refusal("invalid", f"the query's {name}: {what}", path=f"?{name}")


def caller_facts(request: Asked, caller: Caller, path: str, sha256: str) -> dict[str, Any]:
    """What every call to the database says of its caller. `path` is the canonical one."""
    return {
        "user_id": caller.user_id,
        "token_id": caller.token_id,
        "is_operator": caller.is_operator,
        "origin": caller.role,
        "key": _key_of(request),
        "method": request.method,
        "path": path,
        "body_sha256": sha256,
    }


def _key_of(request: Asked) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key.encode()) <= KEY_BYTES_MAX or "\x00" in key:
        raise Refusal(
            "invalid",
            f"Idempotency-Key has 1 to {KEY_BYTES_MAX} bytes; a UUID is a good one",
            path="Idempotency-Key",
        )
    return key


def if_match_of(request: Asked) -> int | None:
    """The generation that the caller believes in; None where any will do."""
    text = request.headers.get("if-match")
    if text is None or text.strip() == "*":
        return None
    match = _ETAG.fullmatch(text.strip())
    # Another tag cannot be one of ours, so it is one that no longer holds: no job is at -1.
    return int(match.group(1)) if match else -1
