"""What command lines may say: ranges, lists, pairs."""

import os
from typing import Any

import click

Kind = click.ParamType[Any]
COUNT: Kind = click.IntRange(1, 2**31 - 1)
AMOUNT: Kind = click.IntRange(0, 2**31 - 1)
SECONDS: Kind = click.FloatRange(0, 2**31 - 1)
SOME_SECONDS: Kind = click.FloatRange(0, 2**31 - 1, min_open=True)
ID: Kind = click.IntRange(1, 2**63 - 1)


class RangeType(Kind):
    """`N`, or `MIN,MAX`: a number of tasks, or what fits from min up."""

    name = "[min,]n"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from app.wire.fields import Range

        parts = str(value).split(",")
        if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
            self.fail(f"{value!r} is neither N nor MIN,N", param, ctx)
        numbers = [COUNT.convert(part, param, ctx) for part in parts]
        if len(numbers) == 1:
            return numbers[0]
        if numbers[0] > numbers[1]:
            self.fail(f"{value!r} has its minimum above its maximum", param, ctx)
        return Range(numbers[0], numbers[1])


class MomentType(Kind):
    """A time in RFC 3339, with its offset."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from datetime import datetime

        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(f"{value!r} is no time like 2026-12-01T08:00:00Z", param, ctx)
        return moment


class TaskType(Kind):
    """`JOB`, or `JOB.INDEX` for one of its tasks."""

    name = "job[.index]"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int | None]:
        if isinstance(value, tuple):
            return value
        job, dot, index = str(value).partition(".")
        if not all(part.isascii() and part.isdigit() for part in ([job, index] if dot else [job])):
            self.fail(f"{value!r} is neither JOB nor JOB.INDEX", param, ctx)
        job_id = ID.convert(job, param, ctx)
        return (job_id, AMOUNT.convert(index, param, ctx) if dot else None)


class NamesType(Kind):
    """Names, separated by commas."""

    name = "name,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        if isinstance(value, list):
            return value
        names = [name.strip() for name in str(value).split(",")]
        if not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


class IndicesType(Kind):
    """Task indices, separated by commas, with or without the t of `t3`."""

    name = "index,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        if isinstance(value, list):
            return value
        parts = [part.strip().removeprefix("t") for part in str(value).split(",")]
        if not all(part.isascii() and part.isdigit() for part in parts):
            self.fail(f"{value!r} is no list of task indices like 3,4", param, ctx)
        return [AMOUNT.convert(part, param, ctx) for part in parts]


class SpanType(Kind):
    """`any`, `per_host:N` or `hosts:1`."""

    name = "span"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from app.wire.jobs import Span

        kind, _, number = str(value).partition(":")
        if value == "any":
            return "any"
        if kind == "per_host" and number:
            return Span(per_host=COUNT.convert(number, param, ctx))
        if value == "hosts:1":
            return Span(hosts=1)
        return self.fail(f"{value!r} is not any, per_host:N or hosts:1", param, ctx)


class PairType(Kind):
    """`NAME=VALUE`."""

    name = "name=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


class VariableType(PairType):
    """`NAME=VALUE`, or `NAME` with the value that the variable has here.

    The second way keeps a secret out of the command line, which everybody on the machine may read.
    """

    name = "name[=value]"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, str) and value and "=" not in value:
            if value not in os.environ:
                self.fail(f"the variable {value!r} is not set here", param, ctx)
            return value, os.environ[value]
        return super().convert(value, param, ctx)


class CommandType(Kind):
    """A command in one word, taken apart as a shell would."""

    name = "command"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        import shlex

        if isinstance(value, list):
            return value
        try:
            return shlex.split(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


def joined(names: list[str] | None) -> str | None:
    """Names as the API takes them."""
    return ",".join(names) if names else None


RANGE = RangeType()
NAMES = NamesType()
INDICES = IndicesType()
SPAN = SpanType()
PAIR = PairType()
VARIABLE = VariableType()
TASK = TaskType()
COMMAND = CommandType()
MOMENT: Kind = MomentType()

if_match = click.option(
    "--if-match", type=click.IntRange(0), help="Only if the job's generation is still this."
)
