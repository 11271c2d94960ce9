"""Somebody at a terminal: types, and reads what is drawn."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from textual.pilot import Pilot

from app.client.client import Client
from tests.api.world import World
from tui.app import XceApp
from tui.widgets.detail import Detail
from tui.widgets.table import Table

SMALL, LARGE = (80, 24), (120, 40)
PATIENCE_S = 10.0
#: Looks come so seldom that what is seen sooner came by an event or by a key.
NEVER_S = 3_000.0


@dataclass
class Terminal:
    """One running screen."""

    app: XceApp
    pilot: Pilot[None]

    def lines(self) -> list[str]:
        """What is drawn, line by line."""
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines())

    def table(self, name: str) -> Table:
        return self.app.screen.query_one(f"#{name}", Table)

    @property
    def about(self) -> str:
        """What the details are about."""
        return self.app.screen.query_one(Detail).title

    def cells(self, name: str) -> list[tuple[str, ...]]:
        """The rows that a table has, seen or not."""
        return [row.cells for row in self.table(name)._rows]

    async def keys(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, is_so: Callable[[str], object]) -> str:
        """Wait until what is drawn is so, and give it."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so(text := self.text()):
            assert time.monotonic() < deadline, text
            await asyncio.sleep(0.01)
            await self.pilot.pause()
        return text

    async def tells(self, about: str) -> str:
        return await self.until(lambda _: self.about == about)

    async def shows(self, *words: str) -> str:
        return await self.until(lambda text: all(word in text for word in words))


@dataclass
class Terminals:
    """Opens screens on the world's API, or on what stands before it."""

    world: World

    @asynccontextmanager
    async def open(
        self,
        who: str,
        *,
        size: tuple[int, int] = SMALL,
        interval_s: float = 0.2,
        url: str | None = None,
    ) -> AsyncIterator[Terminal]:
        token = self.world.user(who, is_operator=who == "root").token
        environment = {"XCE_API_URL": url or self.world.url, "XCE_TOKEN": token or ""}
        api = Client.from_environment({**environment, "XCE_API_URL": self.world.url})
        me = api.caller()
        api.close()
        app = XceApp(environment, me, interval_s=interval_s)
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Terminal(app, pilot)
