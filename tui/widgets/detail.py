"""The pane that tells all of the selected thing."""

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from tui.details import listed, packed


class Detail(Vertical):
    """A title and below it names and texts, side by side where there is little room."""

    def __init__(self) -> None:
        super().__init__(id="detail")
        self._told: Sequence[tuple[str, str]] = ()
        self._heading = Static(id="detail-title", markup=False)
        self._text = Static(id="detail-text", markup=False)
        #: Takes the keys that scroll where it can have the focus.
        self.scroller = VerticalScroll(self._text, id="detail-lines", can_focus=False)
        self.title = ""
        self.is_packed = True

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self.scroller

    def show(self, title: str, told: Sequence[tuple[str, str]]) -> None:
        """Draw this instead."""
        self.title, self._told = title, told
        self._heading.update(Text(title, no_wrap=True))
        self.draw()

    def draw(self) -> None:
        # The scrollbar takes one, and comes and goes.
        width = max(10, self.scroller.size.width - 1)
        made = (packed if self.is_packed else listed)(self._told, width)
        self._text.update(Text("\n".join(made), no_wrap=True))

    def on_resize(self, _: events.Resize) -> None:
        self.draw()
