"""The program: one watcher that asks, screens that show what it brings."""

import os
from collections.abc import Callable, Mapping
from typing import ClassVar
from urllib.parse import urlsplit

from textual.app import App
from textual.binding import Binding, BindingType

from app.client.client import Client
from app.wire.tokens import Token
from tui.screens.overview import Overview
from tui.watch import Detailed, Told, Troubled, Watcher


class XceApp(App[None]):
    """Shows the cluster as the caller sees it. Raises NotConfigured."""

    CSS_PATH = "theme.tcss"
    TITLE = "xce"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, environment: Mapping[str, str], me: Token, *, interval_s: float) -> None:
        super().__init__()

        def connect(on_retry: Callable[[str], None]) -> Client:
            # No patience: the watcher tells what is wrong at once, and tries again by itself.
            return Client.from_environment(environment, patience_s=0, on_retry=on_retry)

        self.watcher = Watcher(connect, self.post_message, interval_s=interval_s)
        self._overview = Overview(_server(environment["XCE_API_URL"]), me)

    def on_mount(self) -> None:
        self.push_screen(self._overview)
        self.watcher.start()

    def on_unmount(self) -> None:
        self.watcher.stop()

    def on_told(self, message: Told) -> None:
        self._overview.tell(message)

    def on_detailed(self, message: Detailed) -> None:
        self._overview.tell_details(message)

    def on_troubled(self, message: Troubled) -> None:
        self._overview.tell_trouble(message)

    def on_overview_hurried(self, _: Overview.Hurried) -> None:
        self.watcher.hurry()

    def on_overview_turned(self, message: Overview.Turned) -> None:
        self.watcher.turn_to(message.subject)


def run(me: Token, *, interval_s: float) -> None:
    """Show it on this terminal until somebody quits. Raises NotConfigured."""
    XceApp(os.environ, me, interval_s=interval_s).run()


def _server(url: str) -> str:
    """The address without what may stand before an @."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"
