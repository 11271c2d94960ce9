"""A keeper for each test, with its fence renewed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.keeper.host import Host


@pytest_asyncio.fixture
async def unfenced_host(tmp_path: Path) -> AsyncIterator[Host]:
    """Its keeper has heard nothing from a database yet."""
    host = Host(tmp_path)
    await host.connect()
    yield host
    await host.close()


@pytest_asyncio.fixture
async def host(unfenced_host: Host) -> Host:
    await unfenced_host.renew()
    return unfenced_host
