"""DormantRecords: the records of one namespace, in shelves that are copied one at a time.

A walk over 100,000 names needs a copy, because topics come and go meanwhile. One copy of all names is a list whose names the
passes of Python's garbage collector look at for as long as it is young: 20 to 30 ms each. Copies of shelves are small and
short-lived. A small namespace has one shelf, since 64 of them would weigh more than its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.service.topics.dormant_topic import DormantTopic

SHELF_MAX: Final = 2_000
"""Records of the first shelf; later ones are spread over the others."""
SHELVES: Final = 64
"""The others, 1,600 records each where there are 100,000."""


class DormantRecords:
    """The records by full name."""

    __slots__ = ("_first", "_others", "backlog", "count")

    def __init__(self) -> None:
        self._first: dict[str, DormantTopic] = {}
        self._others: list[dict[str, DormantTopic]] = []
        self.count = 0
        """Number of the records."""
        self.backlog = 0
        """Sum of their backlogs."""

    def get(self, name: str) -> DormantTopic | None:
        """Returns the topic's record, None for one that has none here."""
        return self._first.get(name) or (
            self._others[hash(name) % SHELVES].get(name) if self._others else None
        )

    def add(self, name: str, record: DormantTopic) -> None:
        """Adds the record of a topic that has none."""
        if len(self._first) < SHELF_MAX:
            self._first[name] = record
        else:
            if not self._others:
                self._others = [{} for _ in range(SHELVES)]
            self._others[hash(name) % SHELVES][name] = record
        self.count += 1
        self.backlog += record.backlog

    def pop(self, name: str) -> DormantTopic | None:
        """Removes and returns the topic's record, None for one that has none here."""
        record = self._first.pop(name, None)
        if record is None and self._others:
            record = self._others[hash(name) % SHELVES].pop(name, None)
        if record is not None:
            self.count -= 1
            self.backlog -= record.backlog
        return record

    def names(self) -> Iterator[str]:
        """Yields the names; records may be added and removed between two of them. One that stays comes once."""
        for shelf in self.shelves():
            yield from [*shelf]

    def shelves(self) -> Iterator[dict[str, DormantTopic]]:
        """Yields the shelves."""
        yield self._first
        yield from self._others
