"""DecisionRing: the newest events of the cache, for the answer why an entry is or is not cached."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from entry_cache.observe.cache_events import CacheEvent, Event, Op

ROWS_PER_SLICE: Final = 20_000
"""Events that take 1 to 2 ms to look through."""


class DecisionRing:
    """Keeps a number of events, and drops the oldest for a new one."""

    def __init__(self, keep: int, now_ns: Callable[[], int]) -> None:
        """`keep`: the number of events, 0 = none. `now_ns` is the clock of the events."""
        self._now_ns = now_ns
        self._rows: deque[CacheEvent] = deque(maxlen=keep)
        self._since_ns = now_ns()
        """When keeping began."""
        self.append = self._rows.append
        """Keeps an event; bound once, because it runs for each run of entries."""

    def keep(self, events: int) -> None:
        """Changes the number of events; kept events stay as far as they fit."""
        # A ring without places kept nothing, so it knows nothing of the time before this call.
        began_anew = not self._rows.maxlen
        since_ns = self._now_ns() if began_anew else self.since_ns
        self._rows = deque(self._rows, events)
        self._since_ns = since_ns
        # The method of the old deque would go on filling that.
        self.append = self._rows.append

    @property
    def kept_max(self) -> int:
        """The length of the ring."""
        return self._rows.maxlen or 0

    @property
    def kept(self) -> int:
        """The number of events in the ring."""
        return len(self._rows)

    @property
    def forgets(self) -> bool:
        """True if the ring is full: events older than `since_ns` were dropped."""
        return len(self._rows) == self._rows.maxlen

    @property
    def since_ns(self) -> int:
        """Everything that happened since then is in the ring."""
        return self._rows[0][0] if self._rows and self.forgets else self._since_ns

    def events(self) -> Iterator[Event]:
        """Returns the events of the ring, oldest first."""
        return map(_event, list(self._rows))

    def about(self, ledger_id: int, entry_id: int) -> Iterator[list[Event]]:
        """Yields the ring's events about one entry, oldest first, in slices between which the loop may turn."""
        # A copy of the references: events come in while the loop turns between two slices, and a deque that
        # changes cannot be walked.
        rows = list(self._rows)
        for start in range(0, len(rows), ROWS_PER_SLICE):
            yield [
                _event(row)
                for row in rows[start : start + ROWS_PER_SLICE]
                if row[4] == ledger_id and 0 <= entry_id - row[5] < row[6]
            ]


def _event(row: CacheEvent) -> Event:
    return Event(row[0], Op(row[1]), *row[2:])
