"""RedeliveryReads: a cursor's reads of single positions that must be delivered again.

A dispatcher keeps the positions in its redelivery queue and reads them when a consumer can take them. Until then the
cache holds the entries for this cursor (PIP-430): the dispatcher says which positions wait and which no longer do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.managed_ledger.acks import Acks
from broker.managed_ledger.entry_read import EntryRead
from broker.managed_ledger.ledger_parts import LedgerParts
from broker.managed_ledger.reading_cursors import CursorView
from entry_cache.listener import HitKind, Redelivery
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import Position
from foundation.model.range_set import EntryRange, RangeSet

_NONE_LOST: Final = RangeSet()


class RedeliveryReads:
    """Part of every cursor; several reads may be in flight."""

    __slots__ = ("_acks", "_in_flight", "_owner", "_parts", "last_error")

    def __init__(self, parts: LedgerParts, cursor: CursorView, acks: Acks) -> None:
        self._parts = parts
        # The cursor has these reads as an attribute, and a cycle would be work for the garbage collector.
        self._owner = weakref.ref(cursor)
        self._acks = acks
        self._in_flight: tuple[_RedeliveryRead, ...] = ()
        self.last_error: BrokerError | None = None
        """Why the last read could not bring some of its entries; None if it brought all."""

    @property
    def _cursor(self) -> CursorView:
        cursor = self._owner()
        assert cursor is not None, "these reads belong to it"
        return cursor

    # Entries that the cache holds for a redelivery

    def expect_redelivery(self, positions: Iterable[tuple[int, int]]) -> None:
        """Expects one more read of each entry: the entries were dispatched and wait again."""
        cache = self._parts.context.cache
        self._parts.context.environment.caches.expect_redelivery(
            self._cursor.reader, cache.present(positions)
        )

    def postpone_delivery(self, positions: Iterable[tuple[int, int]]) -> None:
        """Keeps the expected read of each entry: the entries wait without having been dispatched."""
        cache = self._parts.context.cache
        if entries := cache.present(positions):
            cache.listener.redelivery_changed(Redelivery.POSTPONED, self._cursor.reader, entries)

    def drop_redeliveries(self, positions: Iterable[tuple[int, int]]) -> None:
        """Lets the cache no longer hold the entries for this cursor."""
        cache = self._parts.context.cache
        entries = cache.present(positions)
        cache.listener.redelivery_changed(Redelivery.DROPPED, self._cursor.reader, entries)

    # Reading

    def read_cached(self, positions: Sequence[Position]) -> tuple[list[Entry], list[Position]]:
        """Returns (entries that are cached, positions that are not).

        Positions that are acknowledged or do not exist are in neither.
        """
        context = self._parts.context
        found: list[Entry] = []
        missing: list[Position] = []
        over: list[Position] = []
        get, reader = context.cache.get, self._cursor.reader
        for position in positions:
            if self._acks.is_acknowledged(position) or not context.ledgers.has_entry(*position):
                over.append(position)
                continue
            entry = get(reader, *position, HitKind.REDELIVERY)
            if entry is None:
                missing.append(position)
            else:
                found.append(entry)
        # Acknowledged or trimmed while they waited: the cache must not hold them for ever.
        if over:
            self.drop_redeliveries(over)
        if found:
            context.counters().took(found)
        return found, missing

    def request(self, positions: Sequence[Position], ready: Callable[[list[Entry]], None]) -> None:
        """Reads the entries; the cache keeps fetched ones for one read.

        `ready` gets those that could be read, in order, after this call has returned; `last_error` then says why others
        could not.
        """
        self.last_error = None
        read = _RedeliveryRead(self, self._parts, self._cursor, positions, ready)
        self._in_flight += (read,)
        read.begin()

    def withdraw(self) -> None:
        """Ends the reads that wait for permits, with nothing."""
        for read in self._in_flight:
            read.withdraw()

    def ended(
        self,
        read: _RedeliveryRead,
        entries: list[Entry],
        error: BrokerError | None,
        ready: Callable[[list[Entry]], None],
    ) -> None:
        """Reports a read that has ended; called by that read."""
        self._in_flight = tuple(each for each in self._in_flight if each is not read)
        if error is not None:
            self._cursor.skip_lost(read.positions())
        self.last_error = error
        self._parts.context.counters().took(entries)
        # Last, because the dispatcher may begin the next read inside this call.
        ready(entries)


class _RedeliveryRead:
    """A request: positions as ranges, read under one share of the budget."""

    __slots__ = ("_cursor", "_owner", "_parts", "_ranges", "_read", "_ready", "reader")

    def __init__(
        self,
        owner: RedeliveryReads,
        parts: LedgerParts,
        cursor: CursorView,
        positions: Sequence[Position],
        ready: Callable[[list[Entry]], None],
    ) -> None:
        self._owner = owner
        self._parts = parts
        self._cursor = cursor
        self._ready = ready
        ledgers = parts.context.ledgers
        # Sorted and without duplicates; positions that were trimmed meanwhile are left out.
        wanted = [item for item in sorted(set(positions)) if ledgers.has_entry(*item)]
        self._ranges = neighbours(wanted, parts.context.lost.positions)
        self.reader = cursor.reader
        """The cursor, as the cache counts it."""
        self._read = EntryRead(parts.context, parts.storage_reads, self)

    def begin(self) -> None:
        """Reads the ranges; without any, ends at the end of the turn."""
        if self._ranges:
            self._read.begin(self._ranges)
        else:
            self._parts.context.at_end_of_turn(lambda: self.read_ended([], None))

    def withdraw(self) -> None:
        """Stops waiting for permits."""
        self._read.withdraw()

    def ranges(self) -> Sequence[EntryRange]:
        """Returns the ranges of the positions that are delivered again."""
        return self._ranges

    def positions(self) -> list[tuple[int, int]]:
        """Returns the position of each entry that was asked for."""
        return [(one.ledger_id, entry) for one in self._ranges for entry in range(one.first, one.last + 1)]

    def expected_reads(self) -> int | None:
        """Returns how many cursors are to read the entries again."""
        return self._parts.reading_cursors.of_redelivery(self._cursor)

    def read_ended(self, entries: list[Entry], error: BrokerError | None) -> None:
        """Gives the entries to the owner of the reads.

        The dispatcher dispatches the entries in this turn or puts their positions back into its queue, so the
        permits are released after the dispatchers of this turn.
        """
        permits = self._read.permits
        if permits.held:
            permits.correct(sum([entry.size for entry in entries]))
        self._owner.ended(self, entries, error, self._ready)
        if permits.held:
            self._parts.context.environment.turn.write(lambda _: permits.release())


def neighbours(positions: Sequence[Position], lost: RangeSet = _NONE_LOST) -> list[EntryRange]:
    """Joins ordered positions into ranges of consecutive entries; each lost entry is a range of its own."""
    runs: list[EntryRange] = []
    for position in positions:
        ledger_id, entry_id = position
        joins = runs and runs[-1].ledger_id == ledger_id and runs[-1].last + 1 == entry_id
        # A range with a lost entry fails as a whole.
        if joins and not (lost.count and (position in lost or (ledger_id, entry_id - 1) in lost)):
            runs[-1] = runs[-1]._replace(last=entry_id)
        else:
            runs.append(EntryRange(ledger_id, entry_id, entry_id))
    return runs
