"""Settings as REST speaks of them."""

from datetime import datetime

from msgspec import Struct

from app.wire.fields import Exact


class Setting(Struct, frozen=True, gc=False):
    """What all daemons go by; who changed it last, null where that was not over REST."""

    name: str
    value: Exact
    unit: str
    why: str
    changed_at: datetime | None
    changed_by: str | None


class SettingPut(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `PUT /v1/settings/{name}`."""

    value: float
