"""TopScreen: the screen of `magnetar top`, made with Textual.

One reading after the other, each in a thread, so that keys answer at once while a broker is slow or away. The numbers
of the last reading stay until the next one, and a line says so when the broker does not answer. A view that only the console
has (`views.py`) shows its last answer at once, and asks for a new one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final, Protocol

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, Static

from magnetar.clients.client import CommandError, visible
from magnetar.top.console import ROUTES, Look
from magnetar.top.figures import SUBSCRIPTION, TOPIC
from magnetar.top.numbers import fitted
from magnetar.top.rates import Overview, Scrapes, overview, subscriptions
from magnetar.top.settings_view import TITLES, settings_rows
from magnetar.top.source import TOPICS
from magnetar.top.table import SORTS, cells_of, chosen, head, topic_line
from magnetar.top.views import TEXTS

ROWS_MAX: Final = 500
"""Rows of the table; a filter finds the others."""
NARROW: Final = 110
"""Characters below which the minor columns of the topics are left out."""
SETTING_NARROW: Final = (48, 24)
"""Characters of a setting's name and of its value on a narrow screen; the other columns are to the right of it."""
SETTING_WIDE: Final = (80, 40)
"""The same on a wide screen."""
NAME_MIN: Final = 20
"""Characters that a name has at least, however narrow the screen is."""
_PADDING: Final = 2
_VIEWS: Final = (TOPICS, *ROUTES)
_TITLES: Final = {
    "hour": "the last hour, by the broker's samples of ten seconds",
    "cache": "what entered and left, and why; expected: a reader was still to come",
    "bookies": "the bookies of this broker",
    "cluster": "the brokers on its metadata store, and why bundles moved",
}


class Read(Protocol):
    """Takes a reading."""

    def __call__(self, topic: str, view: str) -> Scrapes:
        """Returns a reading with the subscriptions of `topic` ("" for none) and the answer for `view`."""
        ...


class TopScreen(App[None]):
    """Shows readings of `read` every `interval_s` seconds until a key ends it."""

    TITLE = "magnetar top"
    """Title of the terminal's window."""
    ENABLE_COMMAND_PALETTE = False
    """The keys at the foot are all commands that there are."""
    CSS = """
    #head { height: auto; padding: 0 1; text-style: bold; }
    #away { height: auto; padding: 0 1; display: none; background: $error; color: $text; }
    #state { height: 1; padding: 0 1; color: $text-muted; }
    #filter { display: none; height: 3; }
    #scroll { display: none; height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    #text { height: auto; }
    DataTable { height: 1fr; }
    """
    """Layout, in Textual's style sheets."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"view('{view}')", view) for number, view in enumerate(_VIEWS, 1)),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("p,space", "pause", "pause", key_display="p"),
        Binding("escape", "clear", "back", show=False),
        Binding("q", "quit", "quit"),
    ]
    """Keys with the actions below."""

    def __init__(self, read: Read, interval_s: float, sort: str, text: str, view: str = TOPICS) -> None:
        """Shows `view` first; `sort` and `text` are the order and the filter of the topics."""
        super().__init__()
        self._read = read
        self._interval_s = interval_s
        self._before: Scrapes | None = None
        self._found: Overview | None = None
        self._looks: dict[str, Look] = {}
        self._error = ""
        self._away_since_s = 0.0
        self._sort = sort
        self._text = text
        self._view = view
        self._topic = ""
        self._titles: tuple[str, ...] = ()
        self._listed: list[str] = []
        self._paused = False
        self._reading = False

    def compose(self) -> ComposeResult:
        """Lays out lines, table or text, the filter's input and the keys."""
        yield Static(id="head", markup=False)
        yield Static(id="away", markup=False)
        yield Static(id="state", markup=False)
        yield Input(placeholder="part of a name, Enter", id="filter")
        yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
        with VerticalScroll(id="scroll"):
            yield Static(id="text", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begins with the first reading."""
        self._open(self._view)
        self.set_interval(self._interval_s, self.tick)

    def on_resize(self, _: Resize) -> None:
        """Lays out lines and columns for the new width."""
        self._refresh_all()

    # Readings

    def tick(self) -> None:
        """Takes a reading, unless the screen is paused."""
        if not self._paused:
            self._begin_reading()

    def _begin_reading(self) -> None:
        # A broker with many topics answers more slowly than the interval: threads would pile up, each slowing the others.
        if not self._reading:
            self._reading = True
            self._take_reading(self._topic, self._view)

    @work(thread=True, group="readings")
    def _take_reading(self, topic: str, view: str) -> None:
        try:
            reading = self._read(topic, view)
        except CommandError as error:
            ended = partial(self._failed, str(error))
        else:
            ended = partial(self._show, reading, topic, view)
        self.call_from_thread(self._reading_ended, ended)

    def _reading_ended(self, draw: Callable[[], None]) -> None:
        self._reading = False
        # A thread cannot be cancelled: its reading may arrive while the screen closes and loses one widget after another.
        if self.is_running:
            draw()

    def _show(self, reading: Scrapes, topic: str, view: str) -> None:
        self._found = overview(self._before, reading)
        self._before = reading
        self._error = ""
        if reading.look is not None:
            self._looks[view] = reading.look
        self._refresh_all()
        if (topic, view) != (self._topic, self._view):
            # A key has opened something else meanwhile.
            self._begin_reading()

    def _failed(self, reason: str) -> None:
        if not self._error:
            self._away_since_s = time.monotonic()
        self._error = reason
        self._refresh_all()

    # Drawing

    def _refresh_all(self) -> None:
        self.query_one("#state", Static).update("   ".join(self._state_words()))
        away = self.query_one("#away", Static)
        away.display = bool(self._error)
        seconds = time.monotonic() - self._away_since_s
        away.update(f"NO READING for {seconds:.0f} s, the numbers are older: {visible(self._error)}")
        if self._found is None:
            return
        lines = head(self._found)
        lines += [topic_line(topic) for topic in self._found.topics if topic.name == self._topic]
        self.query_one("#head", Static).update("\n".join(lines))
        if self._view in TEXTS:
            self.query_one("#text", Static).update("\n".join(self._lines()))
        elif self._view == TOPICS:
            self._fill_topics(self._found)
        else:
            self._fill_settings()

    def _state_words(self) -> list[str]:
        if self._topic:
            words = ["subscriptions of the topic", "Escape: all topics"]
        elif self._view == TOPICS:
            words = [f"topics by {self._sort}", "Enter: subscriptions"]
        elif self._view == "settings":
            words = ["settings, those that differ from the default first"]
        else:
            words = [_TITLES[self._view]]
        if self._text and self._is_table and not self._topic:
            words.append(f"filter: {visible(self._text)} (Escape: all)")
        if self._paused:
            words.append("PAUSED")
        return words

    @property
    def _is_table(self) -> bool:
        return self._view not in TEXTS

    def _lines(self) -> list[str]:
        look = self._looks.get(self._view)
        if look is None:
            return ["asking the broker"]
        if look.answer is None:
            return [visible(look.error)]
        width = self.query_one("#scroll").content_size.width or self.size.width - _PADDING
        try:
            return TEXTS[self._view](look.answer, width)
        except (KeyError, TypeError, ValueError) as error:
            # The broker may be of another version than this command, with other fields.
            return [
                f"The answer of this broker cannot be shown ({type(error).__name__}: {error}); use its console"
            ]

    def _fill_topics(self, found: Overview) -> None:
        if self._topic:
            known = [] if self._before is None else subscriptions(self._before.broker, self._topic)
            titles, *rows = cells_of(SUBSCRIPTION, "subscription", known)
            self._fill(titles, rows)
            return
        topics = chosen(found.topics, self._sort, self._text, ROWS_MAX)
        self._listed = [topic.name for topic in topics]
        titles, *rows = cells_of(TOPIC, "topic", topics, narrow=self._is_narrow)
        self._fill(titles, rows, self._name_max(titles, rows))

    def _fill_settings(self) -> None:
        look = self._looks.get(self._view)
        if look is None or look.answer is None:
            self._fill(("",), [("asking the broker" if look is None else visible(look.error),)])
            return
        name_max, value_max = SETTING_NARROW if self._is_narrow else SETTING_WIDE
        self._fill(TITLES, settings_rows(look.answer, self._text, value_max), name_max)

    @property
    def _is_narrow(self) -> bool:
        return self.size.width < NARROW

    def _fill(
        self, titles: tuple[str, ...], rows: Sequence[tuple[str, ...]], name_max: int = sys.maxsize
    ) -> None:
        """Fills the table; a name longer than `name_max` characters loses its beginning."""
        table = self._table
        place = table.cursor_row
        if titles != self._titles:
            self._titles, place = titles, 0
            table.clear(columns=True)
            table.add_columns(*titles)
        else:
            table.clear()
        for name, *cells in rows:
            # A plain str would be read as markup, which swallows brackets in a name and fails at some of them.
            table.add_row(Text(fitted(name, name_max)), *map(Text, cells))
        table.move_cursor(row=place)

    def _name_max(self, titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> int:
        """Returns the characters that the other columns leave to the first one."""
        others = [max(map(len, column)) + _PADDING for column in zip(*[titles, *rows], strict=True)][1:]
        return max(NAME_MIN, self.size.width - sum(others) - 2 * _PADDING)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#table", DataTable)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the keys that have no effect in the view that is open."""
        if action == "sort":
            return self._view == TOPICS and not self._topic
        return action != "filter" or (self._is_table and not self._topic)

    def action_view(self, view: str) -> None:
        """Opens a view."""
        self._topic = ""
        self._text = ""
        self._open(view)

    def _open(self, view: str) -> None:
        self._view = view
        self.query_one(Input).display = False
        self.query_one("#scroll").display = not self._is_table
        self._table.display = self._is_table
        (self._table if self._is_table else self.query_one("#scroll")).focus()
        self.refresh_bindings()
        self._refresh_all()
        # Also while the screen is paused: a view that was never open has no answer yet.
        self._begin_reading()

    def action_pause(self) -> None:
        """Stops readings, or goes on with them."""
        self._paused = not self._paused
        self._refresh_all()
        self.tick()

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
        if self._view == TOPICS and not self._topic and event.cursor_row < len(self._listed):
            self._topic = self._listed[event.cursor_row]
            self._open(TOPICS)

    def action_clear(self) -> None:
        """Closes the topic; without one the filter; without both the view, so that all topics are shown."""
        if self._topic:
            self._topic = ""
            self._open(TOPICS)
        elif self._text or self.query_one(Input).display:
            self._text = ""
            self._close_filter()
        elif self._view != TOPICS:
            self.action_view(TOPICS)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Takes the filter's text."""
        self._text = event.value.strip()
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one(Input).display = False
        self._table.focus()
        self._refresh_all()
