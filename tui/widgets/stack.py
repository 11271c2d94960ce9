"""Tables below each other, each as high as it needs and there is room for."""

from collections.abc import Mapping

from textual import events
from textual.containers import Vertical

from tui.widgets.table import Table
from tui.widths import heights


class Stack(Vertical):
    """The current table may take half of the room where all want more."""

    def __init__(self, tables: Mapping[str, Table], *, current: str) -> None:
        super().__init__(*tables.values(), id="tables")
        self._tables = tables
        self._current = current

    def share(self, current: str) -> None:
        """Divide the room anew."""
        self._current = current
        names = list(self._tables)
        needs = [table.lines_wanted for table in self._tables.values()]
        shares = heights(needs, current=names.index(current), total=self.size.height)
        for table, height in zip(self._tables.values(), shares, strict=True):
            table.styles.height = height

    def on_resize(self, _: events.Resize) -> None:
        self.share(self._current)
