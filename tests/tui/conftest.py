"""An API on a real PostgreSQL, and somebody at a terminal."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.api.world import World, running_world
from tests.support.cluster import Database
from tests.tui.terminal import Terminals


@pytest.fixture(autouse=True)
def _quiet_api() -> Iterator[None]:
    """The API runs in this process: its log must not get onto the screen."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture
def _no_thread_is_left() -> Iterator[None]:
    """Whoever was closed asks nobody any more, once the API has ended its stream."""
    yield
    deadline = time.monotonic() + 10
    for thread in threading.enumerate():
        if thread.name.startswith("tui-"):
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), thread.name


@pytest.fixture
def world(_no_thread_is_left: None, database: Database, tmp_path: Path) -> Iterator[World]:
    with running_world(database, tmp_path) as made:
        yield made


@pytest.fixture
def terminal(world: World) -> Terminals:
    return Terminals(world)
