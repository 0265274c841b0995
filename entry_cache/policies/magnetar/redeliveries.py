"""Redeliveries: which cached entries wait to be delivered again, and to which readers, for the policy `magnetar`.

This policy sees readers by their positions, so it counts redeliveries alone: `Entry.expected_reads` is the number of
readers that wait for a redelivery of the entry. A reader that waits twice counts once, and no reader takes back the
wait of another one.

`Redeliveries` is the policy's `ReadCounts`. The `MagnetarListener` hears of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from entry_cache.active_cursors import ActiveCursors
from entry_cache.listener import Redelivery
from entry_cache.policies.magnetar.log_readers import LogReaders
from entry_cache.range_cache import CachedLog
from entry_cache.reader import Reader
from foundation.model.entry import Entry


class Redeliveries:
    """The `ReadCounts` of the policy `magnetar`."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        """Begins with no entry that waits."""
        self.waiting: dict[Entry, set[int]] = {}
        """By cached entry, the numbers of the readers that wait for it.

        While it is empty, no pass needs to search segments for entries that wait.
        """

    def initial(self, expected_reads: int | None) -> int | None:
        """Returns 0: no reader waits for a redelivery of a new entry."""
        return 0

    def fills_cache(self, expected_reads: int) -> bool:
        """Returns True if an active cursor is to read the entries."""
        return expected_reads >= 1

    def mark_delivered(self, entries: Iterable[Entry]) -> None:
        """Changes nothing: the cursor's position tells that it has read them."""

    def expect_redelivery(self, reader: int, entries: Iterable[Entry]) -> None:
        """Notes that the reader waits for these entries, as far as they are cached."""
        for entry in entries:
            # An entry that was removed meanwhile is read from storage; keeping it here would keep its buffer
            # alive.
            if entry.cached:
                # A set of readers and not a number: a reader that reports one entry twice must count once, or
                # the entry would wait for a read that never comes.
                readers = self.waiting.setdefault(entry, set())
                readers.add(reader)
                entry.expected_reads = len(readers)

    def end(self, reader: int, entry: Entry) -> None:
        """Notes that the reader no longer waits for the entry: it was read, or is not needed."""
        readers = self.waiting.get(entry)
        if readers is not None:
            readers.discard(reader)
            entry.expected_reads = len(readers)
            if not readers:
                del self.waiting[entry]

    def offered_again(self, present: Entry, count: int | None) -> bool:
        """Returns True: the readers are those of the position, whichever object they get."""
        return True


class MagnetarListener:
    """A listener that tells the policy of redeliveries, and watches the cursors of each log."""

    def __init__(self, redeliveries: Redeliveries) -> None:
        """Made by the policy."""
        self._redeliveries = redeliveries

    def cursors_attached(
        self,
        cache: CachedLog,
        cursors: ActiveCursors,
        now_ns: int,
        *,
        counts_reads: bool,
        by_mark_delete: bool,
    ) -> None:
        """Begins to watch the cursors of a log."""
        # The rules of the managed ledger do not matter here: positions tell of expected reads under all of
        # them.
        cursors.watcher = LogReaders(cursors)

    def redelivery_changed(self, change: Redelivery, reader: Reader, entries: Sequence[Entry]) -> None:
        """Keeps the waits of the reader; `Redeliveries` is told of EXPECTED by the manager."""
        if change is Redelivery.POSTPONED:
            # The cursor has moved past the entries all the same, so no position tells of this read.
            self._redeliveries.expect_redelivery(reader.number, entries)
        elif change is Redelivery.DROPPED:
            for entry in entries:
                self._redeliveries.end(reader.number, entry)

    def redelivery_read(self, reader: Reader, entry: Entry) -> None:
        """Ends the entry's wait for a redelivery; a return to the redelivery queue is told again."""
        self._redeliveries.end(reader.number, entry)
