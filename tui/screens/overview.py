"""The first screen: hosts, jobs and open requests, and all of the selected one."""

from typing import ClassVar, NamedTuple

from msgspec import Struct
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from app.runtime.clock import elapsed_s
from app.wire.tokens import Token
from tui.details import pairs
from tui.headline import Freshness, headline, trouble
from tui.state import (
    HOST_COLUMNS,
    JOB_COLUMNS,
    REQUEST_COLUMNS,
    Answers,
    Sheet,
    Sheets,
    chosen,
    title,
)
from tui.watch import Detailed, Kind, Subject, Told, Troubled
from tui.widgets.detail import Detail
from tui.widgets.stack import Stack
from tui.widgets.table import Table

#: From here on the details stand beside the tables.
WIDE = 110


class Sort(NamedTuple):
    """One of the three tables: its id, what a row of it is, and which sheet it shows."""

    name: str
    kind: Kind


SORTS = (Sort("hosts", "host"), Sort("jobs", "job"), Sort("requests", "request"))
COLUMNS = {"hosts": HOST_COLUMNS, "jobs": JOB_COLUMNS, "requests": REQUEST_COLUMNS}


class Overview(Screen[None]):
    """Draws what it is told; asks the rest of the program by messages."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - textual's way
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "Next", show=True),
        Binding("enter", "whole", "All of it"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("o", "mine", "Mine/all"),
        Binding("r", "refresh", "Refresh"),
        Binding("q", "app.quit", "Quit"),
        Binding("escape", "back", "Back", show=False),
    ]

    class Hurried(Message):
        """Somebody wants to see it now."""

    class Turned(Message):
        """Somebody looks at this one."""

        def __init__(self, subject: Subject | None) -> None:
            super().__init__()
            self.subject = subject

    def __init__(self, server: str, me: Token) -> None:
        super().__init__()
        self._server = server
        self._me = me
        self._fresh = Freshness()
        self._answers: Answers | None = None
        self._made: Sheets | None = None
        self._words = {sort.name: "" for sort in SORTS}
        self._is_mine = False
        self._current = "jobs"
        self._detailed: Detailed | None = None
        # Held here, not looked up: what is told may come before and after they are on the screen.
        self._headline = Static(id="headline", markup=False)
        self._trouble = Static(id="trouble", markup=False)
        self._tables = {
            name: Table(columns, title=name, name=name) for name, columns in COLUMNS.items()
        }
        self._stack = Stack(self._tables, current=self._current)
        self._detail = Detail()
        self._box = Input(id="filter", placeholder="words that a row must have", compact=True)

    def compose(self) -> ComposeResult:
        yield self._headline
        yield self._trouble
        with Container(id="body"):
            yield self._stack
            yield self._detail
        yield self._box
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._box.display = False
        self.set_interval(1.0, self._draw_headline)
        self._draw_headline()
        self._table().focus()

    # What is told -----------------------------------------------------------------------------

    def tell(self, told: Told) -> None:
        """All of it, anew."""
        self._answers, self._made = told.answers, told.made
        self._fresh = Freshness(told_at=elapsed_s(), next_s=told.next_s)
        self._draw_headline()
        for sort in SORTS:
            self._draw_table(sort.name)
        self._stack.share(self._current)
        self._draw_detail()

    def tell_trouble(self, troubled: Troubled) -> None:
        """What is shown stays and is old."""
        self._fresh = Freshness(
            told_at=self._fresh.told_at,
            error=f"{troubled.error.code}: {troubled.error.detail}",
            retry_at=elapsed_s() + troubled.retry_s,
        )
        self._draw_headline()

    def tell_details(self, detailed: Detailed) -> None:
        self._detailed = detailed
        self._draw_detail()

    # What is typed ----------------------------------------------------------------------------

    def action_refresh(self) -> None:
        self.post_message(self.Hurried())

    def action_mine(self) -> None:
        if self._me.role != "operator":
            self.notify("Your token shows you your own jobs only.", markup=False)
            return
        self._is_mine = not self._is_mine
        for sort in SORTS:
            self._draw_table(sort.name)

    def action_filter(self) -> None:
        self._box.value = self._words[self._current]
        self._box.display = True
        self.set_focus(self._box)

    def action_whole(self) -> None:
        """The details over the whole screen, and back."""
        self.toggle_class("-whole")
        self._table().choose()
        is_whole = self.has_class("-whole")
        scroller = self._detail.scroller
        scroller.can_focus = is_whole
        (scroller if is_whole else self._table()).focus()
        self._arrange(self.size.width)

    def action_back(self) -> None:
        if self.has_class("-whole"):
            self.action_whole()
            return
        self._filter("")
        self._table().focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.display:
            self._filter(event.value)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        self._table().focus()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        if event.widget is self._box:
            self._box.display = False

    def on_table_selected(self, event: Table.Selected) -> None:
        if event.table.has_focus and event.table.id:
            self._current = event.table.id
        for name, table in self._tables.items():
            table.set_class(name == self._current, "-current")
            table.refresh()
        self._stack.share(self._current)
        self._draw_detail()
        self.post_message(self.Turned(self._subject()))

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size.width)

    # What is drawn ----------------------------------------------------------------------------

    def _table(self) -> Table:
        return self._tables[self._current]

    def _filter(self, words: str) -> None:
        self._words[self._current] = words
        self._draw_table(self._current)

    def _arrange(self, width: int) -> None:
        self._detail.is_packed = width < WIDE and not self.has_class("-whole")
        self._detail.draw()

    def _draw_headline(self) -> None:
        now, me = elapsed_s(), self._me
        line = headline(self._server, me.user, me.role, self._fresh, now=now)
        self._headline.update(Text(line, no_wrap=True))
        told = trouble(self._fresh, now=now)
        self._trouble.display = told is not None
        self._trouble.update(Text(told or ""))

    def _draw_table(self, name: str) -> None:
        if self._made is None:
            return
        sheet: Sheet = getattr(self._made, name)
        owner = self._me.user if self._is_mine and name != "hosts" else None
        rows = chosen(sheet, words=self._words[name], owner=owner)
        about = title(name, sheet, shown=len(rows), words=self._words[name], owner=owner)
        self._tables[name].show(rows, sheet.widths, about)

    def _subject(self) -> Subject | None:
        table = self._table()
        if table.key is None:
            return None
        kind = next(sort.kind for sort in SORTS if sort.name == self._current)
        name = table.row.cells[0] if table.row else ""
        return Subject(kind, table.key, name)

    def _draw_detail(self) -> None:
        subject = self._subject()
        thing = self._thing(subject)
        if subject is None or thing is None:
            self._detail.show("nothing is selected", [])
            return
        requests = self._answers.requests if self._answers else []
        own = [one for one in requests if subject.kind == "job" and one.job_id == subject.key]
        about = f"{subject.kind} {subject.name if subject.kind == 'host' else subject.key}"
        if self._table().row is None:
            about += "  (not listed any more)"
        self._detail.show(about, pairs(thing, own))

    def _thing(self, subject: Subject | None) -> Struct | None:
        """As it was told by itself, else as the list has it."""
        if subject is None or self._answers is None:
            return None
        if self._detailed is not None and self._detailed.subject[:2] == subject[:2]:
            return self._detailed.thing
        lists: dict[Kind, list[Struct]] = {
            "host": [*self._answers.hosts],
            "job": [*self._answers.jobs, *self._answers.ended],
            "request": [*self._answers.requests],
        }
        found = (thing for thing in lists[subject.kind] if getattr(thing, "id", 0) == subject.key)
        return next(found, None)
