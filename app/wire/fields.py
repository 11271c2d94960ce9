"""Scalars of the REST vocabulary, with the bounds that PostgreSQL and a kernel set."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from msgspec import Meta, Struct

INT_MAX = 2**31 - 1
# JSON can spell a NUL, PostgreSQL cannot store one and no kernel takes one in argv.
_NO_NUL = r"^[^\x00]*$"
# `$` alone would also match before a newline at the end.
_END = r"$(?!\n)"

Count = Annotated[int, Meta(ge=1, le=INT_MAX)]
Amount = Annotated[int, Meta(ge=0, le=INT_MAX)]
Priority = Annotated[int, Meta(ge=-INT_MAX, le=INT_MAX)]
#: A point in time, with its offset.
Moment = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0, le=INT_MAX)]
SomeSeconds = Annotated[float, Meta(gt=0, le=INT_MAX)]
Exact = Decimal

Text = Annotated[str, Meta(max_length=131_071, pattern=_NO_NUL)]
Label = Annotated[str, Meta(min_length=1, max_length=255, pattern=_NO_NUL)]
Path = Annotated[str, Meta(min_length=1, max_length=4_095, pattern=r"^/[^\x00]*$")]
OutputPattern = Annotated[
    str, Meta(min_length=1, max_length=4_095, pattern=r"^(?:[^%\x00]|%[%jath])+$")
]
EnvName = Annotated[str, Meta(max_length=255, pattern=r"^[A-Za-z_][A-Za-z0-9_]*" + _END)]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?" + _END)]

Labels = Annotated[dict[Label, Label], Meta(max_length=256)]
Argv = Annotated[list[Text], Meta(min_length=1, max_length=4_096)]
Env = Annotated[dict[EnvName, Text], Meta(max_length=4_096)]
HostNames = Annotated[list[HostName], Meta(max_length=4_096)]
SomeHostNames = Annotated[list[HostName], Meta(min_length=1, max_length=4_096)]

ExistingHosts = Literal["prefer", "exclude", "any"]


class Range(Struct, frozen=True, forbid_unknown_fields=True):
    """What fits, from min up to max."""

    min: Count
    max: Count
