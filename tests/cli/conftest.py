"""The fixtures of the command line's tests: an API, and somebody who types."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from app.cli.main import run
from tests.api.world import World, running_world
from tests.support.cluster import Database


@dataclass
class Typed:
    """What a command line did."""

    code: int
    out: str
    err: str


Types = Callable[..., Typed]


@pytest.fixture(autouse=True)
def _quiet_api() -> Iterator[None]:
    """The API runs in this process: its log must not get between what the command line prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture
def world(database: Database, tmp_path: Path) -> Iterator[World]:
    with running_world(database, tmp_path) as made:
        yield made


@pytest.fixture
def xcecli(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Types:
    """Run one command line as alice, or as somebody else."""
    monkeypatch.setenv("XCE_API_URL", world.url)

    def types(*words: object, who: str = "alice") -> Typed:
        monkeypatch.setenv("XCE_TOKEN", world.user(who, is_operator=who == "root").token or "")
        capsys.readouterr()
        try:
            code = run([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
        told = capsys.readouterr()
        return Typed(code, told.out, told.err)

    return types
