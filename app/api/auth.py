"""Who calls: `Authorization: Bearer TOKEN`, looked at in the database on every call."""

import time
from collections.abc import Awaitable, Callable

from litestar.di import NamedDependency

from app.api.asking import Asked
from app.api.problems import Refusal
from app.api.rates import Rates
from app.api.services import Services
from app.db.accounts import Caller, token_sha256

TOKEN_CHARACTERS_MAX = 512


async def caller(request: Asked, services: NamedDependency[Services]) -> Caller:
    """The bearer of the token, an owner or an operator. Raises Refusal.

    A revoked token is dead at once; calls that arrive together are looked up together.
    """
    return await _bearer(request, services.rates, services.caller)


async def believed_caller(request: Asked, services: NamedDependency[Services]) -> Caller:
    """The bearer as last seen, which saves a look-up. Raises Refusal.

    Only for calls that carry `token_id` to a routine which refuses a token that is dead by then.
    """
    return await _bearer(request, services.rates, services.believed_caller)


async def _bearer(
    request: Asked, rates: Rates, look_up: Callable[[bytes], Awaitable[Caller | None]]
) -> Caller:
    sha256 = bearer_sha256(request)
    # Before the look-up, so that a caller out of bounds costs the database nothing.
    rates.take(sha256, time.monotonic_ns())
    found = await look_up(sha256)
    if found is None:
        raise unauthenticated("the token is unknown, revoked or expired; ask an operator for one")
    if found.role == "job":
        raise Refusal("not_allowed", "a job's token is good for /v1/in-job only")
    return found


def bearer_sha256(request: Asked) -> bytes:
    """The digest of the token that was sent. Raises Refusal."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= TOKEN_CHARACTERS_MAX:
        raise unauthenticated("send a token as `Authorization: Bearer TOKEN`")
    return token_sha256(token)


def check_operator(who: Caller) -> None:
    """Raises Refusal."""
    if not who.is_operator:
        raise Refusal("not_allowed", "this is for operators; ask one of them")


def unauthenticated(detail: str) -> Refusal:
    return Refusal("unauthenticated", detail)
