"""The screen of `magnetar top`, on Textual: lines about the broker above a table of topics that keys sort and filter.

Enter shows one topic with its subscriptions in place of the table, until Escape.

A reading blocks while the broker answers, so it is made in a thread. A broker that does not answer leaves the last
numbers on the screen, with the reason below them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from magnetar.clients.client import CommandError, visible
from magnetar.top.rates import Overview, Reading, Subscription, overview, subscriptions
from magnetar.top.table import (
    SORTS,
    SUBSCRIPTION_TITLES,
    TITLES,
    chosen,
    head,
    row,
    subscription_row,
    topic_line,
)

ROWS_MAX: Final = 500
"""Rows of the table; a filter finds the others."""


class TopScreen(App[None]):
    """Shows readings of `read` every `interval_s` seconds until a key ends it."""

    TITLE = "magnetar top"
    """Title of the terminal's window."""
    CSS = """
    #head { height: auto; padding: 0 1; text-style: bold; }
    #state { height: 1; padding: 0 1; color: $text-muted; }
    #filter { display: none; height: 3; }
    #subscriptions { display: none; }
    DataTable { height: 1fr; }
    """
    """Layout, in Textual's style sheets."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("space", "pause", "pause"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "clear", "back"),
    ]
    """Keys with the actions below."""

    def __init__(self, read: Callable[[str], Reading], interval_s: float, sort: str, text: str) -> None:
        """`read` gets the topic whose subscriptions are shown, "" for none."""
        super().__init__()
        self._read = read
        self._interval_s = interval_s
        self._before: Reading | None = None
        self._found: Overview | None = None
        self._error = ""
        self._sort = sort
        self._text = text
        self._topic = ""
        self._listed: list[str] = []
        self._paused = False
        self._reading = False

    def compose(self) -> ComposeResult:
        """Lays out lines, table, the filter's input and the keys."""
        yield Static(id="head", markup=False)
        yield Static(id="state", markup=False)
        yield Input(placeholder="part of a topic's name, Enter", id="filter")
        yield DataTable(id="topics", cursor_type="row", zebra_stripes=True)
        yield DataTable(id="subscriptions", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begins with the first reading."""
        self._table.add_columns(*TITLES)
        self.query_one("#subscriptions", DataTable).add_columns(*SUBSCRIPTION_TITLES)
        self._table.focus()
        self.tick()
        self.set_interval(self._interval_s, self.tick)

    def tick(self) -> None:
        """Takes a reading, unless one is under way."""
        # A broker with many topics answers more slowly than the interval: threads would pile up, each slowing the others.
        if not self._reading:
            self._reading = True
            self.take_reading()

    @work(thread=True, exclusive=True, group="readings")
    def take_reading(self) -> None:
        """Reads in a thread, unless the screen is paused."""
        try:
            if self._paused:
                return
            reading = self._read(self._topic)
        except CommandError as error:
            self.call_from_thread(self._failed, str(error))
        else:
            self.call_from_thread(self._show, reading)
        finally:
            self._reading = False

    def _show(self, reading: Reading) -> None:
        self._found = overview(self._before, reading)
        self._before = reading
        self._error = ""
        self._refresh_all()

    def _failed(self, reason: str) -> None:
        self._error = reason
        self._refresh_all()

    def _refresh_all(self) -> None:
        words = [f"sort: {self._sort}", "Enter: subscriptions"]
        if self._topic:
            words = ["subscriptions", "Escape: all topics"]
        elif self._text:
            words.append(f"filter: {visible(self._text)}")
        if self._paused:
            words.append("PAUSED")
        if self._error:
            words.append(visible(self._error))
        self.query_one("#state", Static).update("   ".join(words))
        if self._found is None:
            return
        lines = head(self._found)
        lines += [topic_line(topic) for topic in self._found.topics if topic.name == self._topic]
        self.query_one("#head", Static).update("\n".join(lines))
        if self._topic:
            self._fill("#subscriptions", map(subscription_row, self._subscriptions()))
        else:
            topics = chosen(self._found.topics, self._sort, self._text, ROWS_MAX)
            self._listed = [topic.name for topic in topics]
            self._fill("#topics", map(row, topics))

    def _subscriptions(self) -> list[Subscription]:
        return [] if self._before is None else subscriptions(self._before.broker, self._topic)

    def _fill(self, name: str, rows: Iterable[tuple[str, ...]]) -> None:
        table = self.query_one(name, DataTable)
        place = table.cursor_row
        table.clear()
        for cells in rows:
            # A plain str would be read as markup, which swallows brackets in a name and fails at some of them.
            table.add_row(*map(Text, cells))
        table.move_cursor(row=place)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#topics", DataTable)

    def action_pause(self) -> None:
        """Stops readings, or goes on with them."""
        self._paused = not self._paused
        self._refresh_all()

    def action_sort(self) -> None:
        """Takes the next order."""
        orders = [*SORTS]
        self._sort = orders[(orders.index(self._sort) + 1) % len(orders)]
        self._refresh_all()

    def action_filter(self) -> None:
        """Opens the filter's input."""
        field = self.query_one(Input)
        field.value = self._text
        field.display = True
        field.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Shows the subscriptions of the topic under the cursor."""
        if not self._topic and event.cursor_row < len(self._listed):
            self._show_topic(self._listed[event.cursor_row])

    def action_clear(self) -> None:
        """Closes the topic; without one the filter, so that all topics are shown."""
        if self._topic:
            self._show_topic("")
            return
        self._text = ""
        self._close_filter()

    def _show_topic(self, name: str) -> None:
        self._topic = name
        self._table.display = not name
        other = self.query_one("#subscriptions", DataTable)
        other.display = bool(name)
        (other if name else self._table).focus()
        self._refresh_all()
        # The last reading was made without the subscriptions of this topic.
        self.tick()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Takes the filter's text."""
        self._text = event.value.strip()
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one(Input).display = False
        self._table.focus()
        self._refresh_all()
