"""Lists as REST speaks of them."""

from typing import Generic, TypeVar

from msgspec import Struct

Item = TypeVar("Item")


class Page(Struct, Generic[Item], frozen=True):
    """Some items and the cursor of the next ones, null when there are none."""

    items: list[Item]
    next: str | None
