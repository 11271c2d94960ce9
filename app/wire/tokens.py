"""Tokens as REST speaks of them: never what proves them, but once when they are made."""

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from app.wire.fields import Label, SomeSeconds

TokenRole = Literal["owner", "operator", "job"]
TokenState = Literal["valid", "expired", "revoked"]


class Token(Struct, frozen=True, gc=False):
    """Who may call as whom; `token` itself is told in the answer that makes it and never again."""

    id: int
    user: str
    role: TokenRole
    state: TokenState
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    token: str | UnsetType = UNSET


class TokenAsk(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/tokens`; `user` is the caller where none is named."""

    user: Label | None = None
    role: Literal["owner", "operator"] = "owner"
    expires_in_s: SomeSeconds | None = None
