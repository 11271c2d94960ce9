"""A table of any length: draws the lines that are seen, and keeps what is selected by its id."""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.spelling import MOODS
from tui.state import Column, Row
from tui.widths import fitted, shared

#: The title and the heading stay where they are.
FIXED_LINES = 2
MARK, NO_MARK = "▶ ", "  "
GAP = " "


class Table(Widget, can_focus=True):
    """Rows of text under a title; nothing in a text is markup."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *("table--title", "table--heading", "table--cursor"),
        *("table--well", "table--waiting", "table--ill"),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "end(0)", "First", show=False),
        Binding("end,G", "end(-1)", "Last", show=False),
    ]

    class Selected(Message):
        """Somebody moved to another row, or there is another one."""

        def __init__(self, table: "Table") -> None:
            super().__init__()
            self.table = table

    def __init__(self, columns: Sequence[Column], *, title: str, name: str) -> None:
        super().__init__(id=name)
        self._columns = columns
        self._widths: Sequence[int] = [0] * len(columns)
        self._title = title
        self._rows: Sequence[Row] = ()
        self._top = 0
        self._place = 0
        #: The id of what is selected; once somebody chose it, it stays even when its row goes.
        self.key: int | None = None
        self._is_chosen = False

    @property
    def lines_wanted(self) -> int:
        """With one empty line, which parts it from the next table."""
        return FIXED_LINES + max(1, len(self._rows)) + 1

    @property
    def row(self) -> Row | None:
        """The selected row, None where it is not listed any more."""
        if self._place < len(self._rows) and self._rows[self._place].key == self.key:
            return self._rows[self._place]
        return None

    def show(self, rows: Sequence[Row], widths: Sequence[int], title: str) -> None:
        """Draw these instead; the same thing stays selected, wherever it is now."""
        self._rows, self._widths, self._title = rows, widths, title
        if self._is_chosen:
            places = (place for place, row in enumerate(rows) if row.key == self.key)
            self._place = next(places, min(self._place, max(0, len(rows) - 1)))
        else:
            self._select(0)
        self._scroll()
        self.refresh()

    def choose(self) -> None:
        """Stay at what is selected. Until then the first row is, whichever that becomes."""
        self._is_chosen = self.key is not None

    def action_move(self, by: int) -> None:
        # What was selected is gone: the row in its place is the next one already.
        self._select(self._place if self.row is None and by > 0 else self._place + by)
        self.choose()

    def action_page(self, by: int) -> None:
        self._select(self._place + by * max(1, self._seen - 1))
        self.choose()

    def action_end(self, place: int) -> None:
        self._select(place % max(1, len(self._rows)))
        self._is_chosen = place != 0

    def on_resize(self, _: events.Resize) -> None:
        self._scroll()

    def on_focus(self, _: events.Focus) -> None:
        self.post_message(self.Selected(self))

    def on_click(self, event: events.Click) -> None:
        place = self._top + event.y - FIXED_LINES
        if event.y >= FIXED_LINES and place < len(self._rows):
            self._select(place)
            self.choose()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-1)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return self._line(fitted(self._mark + self._title, width), "table--title")
        widths = self._fitting(width)
        if y == 1:
            return self._line(NO_MARK + self._heading(widths), "table--heading")
        place = self._top + y - FIXED_LINES
        if place >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        return self._row_line(self._rows[place], widths)

    @property
    def _mark(self) -> str:
        return MARK if self.has_class("-current") else NO_MARK

    @property
    def _seen(self) -> int:
        return max(1, self.size.height - FIXED_LINES)

    def _select(self, place: int) -> None:
        before = self.key
        self._place = min(max(0, place), max(0, len(self._rows) - 1))
        self.key = self._rows[self._place].key if self._rows else None
        self._scroll()
        self.refresh()
        if self.key != before:
            self.post_message(self.Selected(self))

    def _scroll(self) -> None:
        last_top = max(0, len(self._rows) - self._seen)
        lowest = self._place - self._seen + 1
        self._top = min(max(self._top, lowest), self._place, last_top)

    def _fitting(self, width: int) -> list[int]:
        room = width - len(MARK) - len(GAP) * (len(self._columns) - 1)
        return shared(self._widths, [column.least for column in self._columns], room)

    def _heading(self, widths: Sequence[int]) -> str:
        columns = zip(self._columns, widths, strict=True)
        return GAP.join(fitted(c.name, w, is_right=c.is_number) for c, w in columns)

    def _row_line(self, row: Row, widths: Sequence[int]) -> Strip:
        is_selected = row.key == self.key
        plain = self._style("table--cursor") if is_selected else self.rich_style
        segments = [Segment(self._mark if is_selected else NO_MARK, plain)]
        for column, width, text in zip(self._columns, widths, row.cells, strict=True):
            mood = MOODS.get(text) if column.name == "state" and not is_selected else None
            style = self._style(f"table--{mood}") if mood else plain
            shown = fitted(text, width, is_right=column.is_number)
            segments += [Segment(shown, style), Segment(GAP, plain)]
        return Strip(segments).adjust_cell_length(self.size.width, plain)

    def _line(self, text: str, component: str) -> Strip:
        style = self._style(component)
        return Strip([Segment(text, style)]).adjust_cell_length(self.size.width, style)

    def _style(self, component: str) -> Style:
        return self.get_component_rich_style(component)
