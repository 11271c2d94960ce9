"""Refusals as REST speaks of them: RFC 9457 with a stable code."""

from typing import Any

from msgspec import Struct


class Problem(Struct, frozen=True):
    """`detail` says what to do; the figures that matter stand beside these members."""

    code: str
    title: str
    status: int
    detail: str
    type: str = "about:blank"


RESERVED = frozenset(Problem.__struct_fields__)


def members(problem: Problem, figures: dict[str, Any]) -> dict[str, Any]:
    """The whole body; a figure may not hide a member."""
    own = {name: getattr(problem, name) for name in ("type", *problem.__struct_fields__)}
    return {**{k: v for k, v in figures.items() if k not in RESERVED}, **own}
