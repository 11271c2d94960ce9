"""The protocol's lines: what a request may say, and how an answer is written."""

import json
import math

from app.keeper.cgroups import Limits
from app.keeper.records import Json, TaskKey
from app.keeper.spawn import Spec

PROTOCOL = 1

LINE_BYTES_MAX = 4 * 1024 * 1024

_ID_MAX = 2**63 - 1

_LIMIT_MAX = 2**40


class Refused(Exception):
    """A typed answer: the request changed nothing."""

    def __init__(self, code: str, detail: str, **more: object) -> None:
        super().__init__(detail)
        self.answer: Json = {"ok": False, "code": code, "detail": detail, **more}


def decode(line: bytes) -> Json:
    """One request; refuses everything that is not an object with a verb."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise Refused("malformed", "not a JSON object on one line") from None
    if not isinstance(request, dict) or not isinstance(request.get("do"), str):
        raise Refused("malformed", 'not an object with a member "do"')
    return request


def request_id(request: Json) -> int | None:
    """What the answer repeats; anything but a number is not worth repeating."""
    number = request.get("id")
    return number if isinstance(number, int) else None


def encode(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def task_key(request: Json) -> TaskKey:
    return (
        integer(request, "job_id"),
        integer(request, "attempt"),
        integer(request, "index"),
    )


def integer(request: Json, name: str) -> int:
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _ID_MAX:
        raise Refused("malformed", f"{name}: not an integer from 0 to 2^63-1")
    return value


def seconds(request: Json, name: str) -> float:
    value = request.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= 10**9:  # type: ignore[arg-type,operator]
        raise Refused("malformed", f"{name}: not a number of seconds")
    return float(value)  # type: ignore[arg-type]


def flag(request: Json, name: str) -> bool:
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise Refused("malformed", f"{name}: not true or false")
    return value


def spec_of(request: Json) -> Spec:
    spec = Spec(task_key(request))
    spec.task_id = _opaque(request.get("task_id"))
    spec.argv = _argv(request.get("argv"))
    spec.env = _environment(request.get("env"))
    spec.cwd = _text(request.get("cwd"), "cwd")
    if request.get("stdout") is not None:
        spec.stdout = _text(request["stdout"], "stdout")
    if request.get("stderr") is not None:
        spec.stderr = _text(request["stderr"], "stderr")
    spec.user = _user(request)
    spec.fence = _fence(request.get("fence"))
    spec.grace_s = seconds(request, "grace_s")
    spec.limits = _limits(request.get("limits"))
    return spec


def _opaque(value: object) -> object:
    if isinstance(value, str):
        _text(value, "task_id", may_be_empty=True)
    elif value is not None and not isinstance(value, int):
        raise Refused("malformed", "task_id: neither a number nor a string")
    return value


def _argv(value: object) -> list[bytes]:
    if not isinstance(value, list) or not value:
        raise Refused("malformed", "argv: not a list of at least one string")
    argv = [_text(item, "argv", may_be_empty=True) for item in value]
    if not argv[0]:
        raise Refused("malformed", "argv: the program has no name")
    return argv


def _environment(value: object) -> dict[bytes, bytes]:
    if not isinstance(value, dict):
        raise Refused("malformed", "env: not an object")
    environment = {}
    for name, content in value.items():
        encoded = _text(name, "env")
        if b"=" in encoded:
            raise Refused("malformed", "env: a name with an equals sign")
        environment[encoded] = _text(content, "env", may_be_empty=True)
    return environment


def _user(request: Json) -> tuple[int, int, list[int]] | None:
    if request.get("uid") is None:
        return None
    groups = request.get("groups", [])
    if not isinstance(groups, list):
        raise Refused("malformed", "groups: not a list")
    ids = [integer(request, "uid"), integer(request, "gid")]
    ids += [integer({"groups": group}, "groups") for group in groups]
    # -1 in 32 bits means "leave as it is" to the kernel, which here would mean root.
    if max(ids) >= 2**32 - 1:
        raise Refused("malformed", "uid, gid, groups: not an id")
    return (ids[0], ids[1], ids[2:])


def _limits(value: object) -> Limits:
    """Of none given, and of 0, there is no limit. They count only where there are cgroups."""
    if value is None:
        return Limits()
    if not isinstance(value, dict) or set(value) - {"cpus", "mem_mib"}:
        raise Refused("malformed", 'limits: not an object of "cpus" and "mem_mib"')
    given = {name: integer(value, name) for name in value}
    if max(given.values(), default=0) > _LIMIT_MAX:
        raise Refused("malformed", "limits: more than any machine has")
    return Limits(**given)


def _fence(value: object) -> str:
    if value not in ("stop", "keep"):
        raise Refused("malformed", 'fence: neither "stop" nor "keep"')
    return str(value)


def _text(value: object, name: str, *, may_be_empty: bool = False) -> bytes:
    """What the kernel takes as a string. The message never repeats it: it may be a secret."""
    if not isinstance(value, str) or not (value or may_be_empty):
        raise Refused("malformed", f"{name}: not a string")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise Refused("malformed", f"{name}: not text") from None
    if b"\0" in encoded:
        raise Refused("malformed", f"{name}: holds a zero byte")
    return encoded
