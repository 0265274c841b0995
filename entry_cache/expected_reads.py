"""Expected reads: how many readers are still to read a cached entry (PIP-430, read count handler).

`Entry.expected_reads` is the count, or None for an entry that is not counted. It begins with the number of readers that
are to come, falls by one with each delivery to a consumer, and rises by one when the entry waits for a redelivery.
`has_expected_reads` is the one question that passes ask of it.

`CountsOf42` counts as Pulsar 4.1 and 4.2 do, the default. Pulsar 5.0 counts differently: see `profiles.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from foundation.model.entry import Entry


def has_expected_reads(entry: Entry) -> bool:
    """Returns True if the entry is counted and reads of it remain."""
    count = entry.expected_reads
    return count is not None and count > 0


class ReadCounts(Protocol):
    """Decides every value of `Entry.expected_reads`; an insert stores the first one."""

    def initial(self, expected_reads: int | None) -> int | None:
        """Returns the first count of an entry with so many readers to come; None = not counted."""
        ...

    def fills_cache(self, expected_reads: int) -> bool:
        """Returns True if a storage read for so many readers is to fill the cache."""
        ...

    def mark_delivered(self, entries: Iterable[Entry]) -> None:
        """Lowers each count by one: the entry was written to a consumer.

        Called for every delivery, with one run of entries each: the hot path.
        """
        ...

    def expect_redelivery(self, reader: int, entries: Iterable[Entry]) -> None:
        """Raises each count by one: a delivered entry waits for redelivery.

        `reader` is the number of the cursor that will read it again.
        """
        ...

    def offered_again(self, present: Entry, count: int | None) -> bool:
        """Decides on the count of an entry whose position was offered a second time.

        `count` is the initial count of the second object. Returns True if readers get the present object from now on,
        so that all reads are counted in one place.
        """
        ...


class CountsOf42:
    """Counts as Pulsar 4.1 and 4.2 do: an entry cached with 0 is never counted.

    A count has no floor: it falls below zero when more readers come than were expected, and a later redelivery
    first has to bring it up again.
    """

    def initial(self, expected_reads: int | None) -> int | None:
        """4.2 creates a counter for a positive count only."""
        return expected_reads if expected_reads is not None and expected_reads > 0 else None

    def fills_cache(self, expected_reads: int) -> bool:
        """4.2 does not cache entries that no reader is to come for."""
        return expected_reads > 0

    def mark_delivered(self, entries: Iterable[Entry]) -> None:
        """Lowers each count by one: the entry was written to a consumer."""
        for entry in entries:
            count = entry.expected_reads
            if count is not None:
                entry.expected_reads = count - 1

    def expect_redelivery(self, reader: int, entries: Iterable[Entry]) -> None:
        """Raises each count by one: a delivered entry waits for redelivery."""
        for entry in entries:
            count = entry.expected_reads
            if count is not None:
                entry.expected_reads = count + 1

    def offered_again(self, present: Entry, count: int | None) -> bool:
        """4.2 ignores the second offer."""
        return False
