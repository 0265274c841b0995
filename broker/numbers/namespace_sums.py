"""NamespaceSums: sums over the topics of each namespace, kept from one scrape to the next.

`update` reads the topics again that have changed and replaces their share in the sums, so a scrape of 100,000 silent topics
reads none. A change is noted where it happens (`LedgerContext.note_change`). Rates are added from the windows, which have
busy topics alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import add, sub
from typing import Final

from broker.managed_ledger.stats import ChangedLedgers
from broker.numbers.columns import Row
from broker.numbers.readings import EVICTIONS, TOPICS, TopicReading
from broker.numbers.topic_reader import TopicReader
from broker.numbers.windows import NO_WINDOW, TopicWindows
from foundation.model.topic_name import TopicName

SLICE_TOPICS: Final = 64
"""Topics that are read between two pauses: about 1 ms."""
SHARED_ROWS_MAX: Final = 1_000
"""Rows that are remembered so that topics with equal numbers, as silent ones have, share one of 500 bytes."""
SHELVES: Final = 64
"""Dicts of the shares: one dict of 600,000, from which topics are taken and to which they come back, is made anew after so
many of them, which holds the loop for 28 ms."""
_CLIENTS: Final = tuple(map(TOPICS.names.index, ("producers", "consumers")))
_MOMENT: Final = len(TOPICS.names)
_EVICTIONS: Final = len(EVICTIONS.names)
NO_SHARE: Final[Row] = (0,) * (_MOMENT + 2 * _EVICTIONS + 1)
"""The sum of no shares."""


def share_of(reading: TopicReading) -> Row:
    """Returns the numbers of a topic that are summed: its row, those of its two quotas, and 1 to count the topics."""
    return (*reading.row, *reading.quotas[0], *reading.quotas[1], 1)


def printed_share(share: Row, window: Row = NO_WINDOW) -> Row:
    """Returns a sum of shares as `TOPICS` prints it, with the row of a window."""
    return share[:_MOMENT] + window + share[-1:]


def evictions_of(share: Row) -> tuple[Row, Row]:
    """Returns the evictions by both quotas."""
    return share[_MOMENT : _MOMENT + _EVICTIONS], share[_MOMENT + _EVICTIONS : -1]


class NamespaceSums:
    """Sums by namespace, and the topics that are not idle."""

    def __init__(self, reader: TopicReader, changed: ChangedLedgers) -> None:
        """The first `update` reads every open or dormant topic; from then on those in `changed`."""
        self._reader = reader
        self._changes = changed.follow()
        self._changes.add(reader.ledger_names())
        # Here and below topics have the names of their managed ledgers, as `changed` has them: another text would be an
        # object of 85 bytes for each topic.
        self._shelves: list[dict[str, Row]] = [{} for _ in range(SHELVES)]
        """Shares by topic."""
        self._sums: dict[str, Row] = {}
        """By namespace."""
        self._shared: dict[Row, Row] = {}
        self._with_clients: set[str] = set()
        self._used: set[str] = set()
        """Topics that have changed since the window under way began."""
        self._used_before: set[str] = set()
        """The same of the window that is being closed; empty otherwise."""

    def update(self) -> Iterator[None]:
        """Reads the topics that have changed, in slices."""
        for number, name in enumerate(self._changes.take(), 1):
            # A dormant topic counts nothing: it is idle from the moment at which it falls asleep.
            if self._reader.is_open(_full(name)):
                self._used.add(name)
            self.renew(name)
            if number % SLICE_TOPICS == 0:
                yield

    def begin_window(self) -> None:
        """Begins to note topics for the next window; those noted so far count as busy until `window_closed`."""
        self._used_before, self._used = self._used, set()

    def window_closed(self) -> None:
        """Forgets the topics that had changed before the window under way; the closed window knows those that counted."""
        self._used_before = set()

    def renew(self, name: str) -> None:
        """Replaces the share of a topic, by its managed ledger's name; one that is neither open nor dormant has none."""
        shares = self._shelves[hash(name) % SHELVES]
        before = shares.pop(name, None)
        reading = self._reader.read(_full(name))
        namespace = TopicName.of_ledger_name(name).namespace
        if before is not None:
            self._add(namespace, tuple(map(sub, NO_SHARE, before)))
        if reading is None:
            for names in (self._with_clients, self._used, self._used_before):
                names.discard(name)
            return
        row = self._equal_row(share_of(reading))
        shares[name] = row
        self._add(namespace, row)
        if any(row[place] for place in _CLIENTS):
            self._with_clients.add(name)
        else:
            self._with_clients.discard(name)

    def _equal_row(self, row: Row) -> Row:
        if len(self._shared) >= SHARED_ROWS_MAX:
            self._shared.clear()
        return self._shared.setdefault(row, row)

    def _add(self, namespace: str, row: Row) -> None:
        row = tuple(map(add, self._sums.get(namespace, NO_SHARE), row))
        if row[-1]:
            self._sums[namespace] = row
        else:
            self._sums.pop(namespace, None)

    def by_namespace(self, windows: TopicWindows) -> dict[str, Row]:
        """Returns rows as `TOPICS` prints them, with the rates of the last whole window."""
        return {
            namespace: printed_share(row, windows.sums.get(namespace, NO_WINDOW))
            for namespace, row in self._sums.items()
        }

    def evictions(self) -> tuple[Row, Row]:
        """Returns the evictions by both quotas, of all topics together."""
        return evictions_of(tuple(map(sum, zip(NO_SHARE, *self._sums.values(), strict=True))))

    def busy(self, windows: TopicWindows) -> Iterator[TopicReading]:
        """Yields readings of the topics that have clients or have changed since the last whole window began."""
        # The caller gives the loop turns meanwhile, in which a name may move from one set to another.
        yielded: set[str] = set()
        for name in self._noted(windows):
            if name not in yielded:
                yielded.add(name)
                reading = self._reader.read(name)
                if reading is not None:
                    yield reading

    def _noted(self, windows: TopicWindows) -> Iterator[str]:
        for names in (self._with_clients, self._used, self._used_before):
            yield from map(_full, list(names))
        yield from list(windows.names())


def _full(ledger_name: str) -> str:
    """Returns the topic's full name."""
    return str(TopicName.of_ledger_name(ledger_name))
