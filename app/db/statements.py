"""Finds SQL by name: the text of sql/queries/<name>.sql."""

from functools import cache
from importlib.resources import files
from typing import LiteralString


@cache
def statement(name: str) -> LiteralString:
    """The text of one named query. Raises FileNotFoundError."""
    return files("sql").joinpath("queries", f"{name}.sql").read_text(encoding="utf-8")


def statement_names(prefix: str = "") -> list[str]:
    """The names of all queries that begin with `prefix`, sorted."""
    names = (path.name for path in files("sql").joinpath("queries").iterdir())
    return sorted(
        n.removesuffix(".sql") for n in names if n.endswith(".sql") and n.startswith(prefix)
    )
