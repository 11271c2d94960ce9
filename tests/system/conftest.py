"""A data folder for `xce up` of which nothing lives on, whatever the test left running there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.daemons.keeper_watch import KeeperWatch
from app.daemons.leftovers import end_leftovers
from app.db import embedded


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    end_leftovers(f"--folder {folder}", 1)
    for host in folder.glob("hosts/*"):
        KeeperWatch(host).shut_down()
    server = embedded.find(folder / "postgres") if (folder / "postgres").exists() else None
    if server is not None:
        embedded.stop(server, patience_s=1)
