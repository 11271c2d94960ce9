"""Structured logs on stderr: one event name and key-values a line."""

import logging
import sys
from types import ModuleType
from typing import cast

# structlog's console output takes in all of rich where that is installed: 5 MiB that no daemon
# has a use for, a twelfth of what a worker and its keeper may have together.
_modules = cast("dict[str, ModuleType | None]", sys.modules)
_modules.setdefault("rich", None)
import structlog  # noqa: E402

if _modules["rich"] is None:
    del _modules["rich"]


def configure_logs(program: str, *, level: str = "info") -> None:
    """Send this process' logs, and those of the libraries it uses, to stderr."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "program", "event"], bool_as_flag=False
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(program=program)
    logging.basicConfig(
        stream=sys.stderr, level=max(number, logging.WARNING), format="%(name)s: %(message)s"
    )


def logger() -> structlog.typing.FilteringBoundLogger:
    """The log of this process."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return bound
