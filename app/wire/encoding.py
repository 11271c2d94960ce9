"""Structs to JSON and back; decimals are plain JSON numbers, so that microseconds stay exact."""

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar

import msgspec

Shape = TypeVar("Shape")

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def encode(value: Any) -> bytes:
    """JSON, times in RFC 3339."""
    return _ENCODER.encode(value)


def decode(text: bytes, shape: type[Shape]) -> Shape:
    """Raises msgspec.DecodeError (not JSON) or its ValidationError (another shape)."""
    known: Hashable = shape
    found: Shape = _decoder(known).decode(text)
    return found


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)
