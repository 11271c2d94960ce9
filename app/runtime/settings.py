"""What a daemon is told by its environment, read once at its root and handed down."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


class SettingsError(ValueError):
    """The environment lacks something or holds nonsense; the message says what to set."""


@dataclass(frozen=True)
class Settings:
    """The environment of a daemon. The URL names a passfile; it holds no password."""

    database_url: str
    log_level: str = "info"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Raises SettingsError when `XCE_DATABASE_URL` is not set."""
        values = os.environ if environment is None else environment
        url = values.get("XCE_DATABASE_URL", "")
        if not url:
            raise SettingsError(
                "XCE_DATABASE_URL is not set: give the database, for instance "
                "postgresql://xce@127.0.0.1/xce?passfile=/etc/xce/passfile"
            )
        return cls(database_url=url, log_level=values.get("XCE_LOG_LEVEL", "info"))
