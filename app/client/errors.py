"""How a call can fail: refused by the API, or never answered."""

from typing import Any


class ApiError(Exception):
    """`code` is stable, `detail` says what to do, `figures` are the numbers that matter."""

    def __init__(
        self, code: str, detail: str, *, status: int = 0, figures: dict[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status
        self.figures = figures or {}


class Refused(ApiError):
    """The API said no; asking again changes nothing by itself."""


class Unavailable(ApiError):
    """No answer, or none but "not now", although the call was repeated.

    What was asked for may have happened. The next call with the same key tells.
    """


class Untrusted(Unavailable):
    """Somebody answers there, but cannot prove who; trying again would change nothing."""


class NotConfigured(Exception):
    """The environment does not say where the API is, or who calls; the message says what to set."""
