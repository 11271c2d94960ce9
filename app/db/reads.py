"""Composes named statements: which rows are wanted, and what is told of each."""

from functools import cache
from typing import LiteralString

from app.db.statements import statement


@cache
def selected(wanted: str, rows: str) -> LiteralString:
    """The statement `rows`, over the ids that the statement `wanted` gives."""
    return "with wanted as (\n" + statement(wanted) + ")\n" + statement(rows)
