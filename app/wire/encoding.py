"""Structs to JSON and back; decimals are plain JSON numbers, so that microseconds stay exact."""

from typing import Any, TypeVar

import msgspec

Shape = TypeVar("Shape")

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def encode(value: Any) -> bytes:
    """JSON, times in RFC 3339."""
    return _ENCODER.encode(value)


def decode(text: bytes, shape: type[Shape]) -> Shape:
    """Raises msgspec.DecodeError (not JSON) or its ValidationError (another shape)."""
    decoder = _DECODERS.get(shape)
    if decoder is None:
        decoder = _DECODERS[shape] = msgspec.json.Decoder(shape)
    found: Shape = decoder.decode(text)
    return found
