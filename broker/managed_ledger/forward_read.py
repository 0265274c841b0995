"""ForwardRead and ReadyEntries: a cursor's read from its read position on, and the entries that it brought.

Entries wait in ReadyEntries until the dispatcher takes them. They hold permits of the read budget for so long, and
may be dropped when other reads need the permits: the cursor then reads them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.managed_ledger.entry_read import EntryRead
from broker.managed_ledger.inflight_reads_limiter import ReadPermits
from broker.managed_ledger.ledger_parts import LedgerParts
from broker.managed_ledger.reading_cursors import CursorView
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.range_set import EntryRange


class ForwardRead:
    """A cursor's read from its read position on.

    `ready` is called exactly once, when the read has ended or was withdrawn.
    """

    __slots__ = ("_bytes_max", "_cursor", "_entries_max", "_parts", "_read", "_ready", "_stale", "reader")

    def __init__(
        self,
        cursor: CursorView,
        parts: LedgerParts,
        entries_max: int,
        bytes_max: int,
        ready: Callable[[], None],
    ) -> None:
        self._cursor = cursor
        self._parts = parts
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._ready = ready
        self._stale = False
        """The read position has jumped since the range was fixed: the entries are of no use."""
        self.reader = cursor.reader
        """The cursor, as the cache counts it."""
        self._read = EntryRead(parts.context, parts.storage_reads, self)

    def begin(self, first: EntryRange) -> None:
        """Acquires permits for the range and reads it."""
        self._read.begin((first,))

    def position_jumped(self) -> None:
        """Drops the result if the range is fixed already; a read that waits for permits reads at the new position."""
        if self._read.begun:
            self._stale = True

    def withdraw(self) -> None:
        """Stops waiting for permits, or drops the result once it comes."""
        self.position_jumped()
        self._read.withdraw()

    # Called by the EntryRead

    def ranges(self) -> Sequence[EntryRange]:
        """Returns the range after the read position; nothing at the end of the log."""
        place = self._cursor.range_to_read(self._entries_max, self._bytes_max)
        return () if place is None else (place,)

    def expected_reads(self) -> int | None:
        """Returns how many cursors are to read the entries: those at or before this one."""
        return self._parts.reading_cursors.at_or_before(self._cursor)

    def read_ended(self, entries: list[Entry], error: BrokerError | None) -> None:
        """Delivers the entries, or drops them if the cursor has moved meanwhile."""
        if self._stale:
            # Neither an error: it concerns a place that the cursor has left.
            entries, error = [], None
        if not entries:
            self._read.permits.release()
        # The cursor first, so that `ready` finds the entries and may ask for the next read at once.
        self._cursor.forward_read_ended(entries, self._read.permits, error)
        self._ready()


class ReadyEntries:
    """Entries that were read and not taken yet, with their permits."""

    __slots__ = ("_permits", "_turn", "entries")

    def __init__(self, turn: Turn) -> None:
        self.entries: list[Entry] = []
        """From the cursor's read position on; consecutive but for entries that a former `take` left out."""
        self._permits: ReadPermits | None = None
        self._turn = turn

    def keep(self, entries: list[Entry], permits: ReadPermits) -> None:
        """Holds the entries of a read; its permits shrink to their size."""
        self.entries = entries
        self._permits = permits
        # Without a limit there is nothing to settle, so skip the sum over all entries.
        if permits.held:
            permits.correct(sum([entry.size for entry in entries]))
            self._settle_later()

    def take(self, entries_max: int, bytes_max: int) -> list[Entry]:
        """Removes and returns entries from the front, at least one."""
        ready = self.entries
        count = 0
        size_bytes = 0
        for entry in ready[:entries_max]:
            size_bytes += entry.size
            if size_bytes > bytes_max and count:
                break
            count += 1
        # Both slices are new lists: the taken entries belong to the dispatcher, which may change its list.
        self.entries = ready[count:]
        if not self.entries:
            self._settle_later()
        return ready[:count]

    def prepend(self, entries: Sequence[Entry]) -> None:
        """Holds entries again that were taken and not dispatched."""
        self.entries = [*entries, *self.entries]

    def leaves_out(self, ledger_id: int, entry_id: int) -> bool:
        """Returns True when the entry stands between the held entries and is not one of them."""
        ready = self.entries
        if not ready or ready[0].ledger_id != ledger_id or entry_id > ready[-1].entry_id:
            return False
        return all(entry.entry_id != entry_id for entry in ready)

    def drop(self) -> None:
        """Forgets the entries and releases their permits."""
        self.entries = []
        if self._permits is not None:
            permits, self._permits = self._permits, None
            permits.release()

    def _settle_later(self) -> None:
        """Settles the permits after the dispatchers of this turn.

        The dispatchers take entries first: the rank of writes comes after theirs.
        """
        if self._permits is not None and self._permits.held:
            self._turn.write(self._settle)

    def _settle(self, now_ns: int) -> None:
        """Releases the permits when all was taken; lends them while entries wait for a slow client."""
        if not self.entries:
            self.drop()
        elif self._permits is not None:
            self._permits.lend(self.drop)
