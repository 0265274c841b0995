"""Reads that belong to no cursor: a look at a message, a search by time, deduplication, expiry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bookkeeper.ensembles import awaited_reads
from broker.managed_ledger.entry_read import EntryRead
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.storage_reads import StorageReads
from foundation.model.entry import Entry
from foundation.model.errors import LOST_ENTRY, BrokerError, NoSuchEntry, NoSuchLedger
from foundation.model.position import Position
from foundation.model.range_set import EntryRange


class _AwaitedRead:
    """A ReadOwner of consecutive entries whose result is awaited."""

    __slots__ = ("_wanted", "answer", "reader")

    def __init__(self, context: LedgerContext, wanted: EntryRange) -> None:
        self._wanted = (wanted,)
        self.reader = context.single_reader
        """The reader of single entries, which is no cursor."""
        self.answer: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()
        """The entries, or the error."""

    def ranges(self) -> Sequence[EntryRange]:
        """Returns the wanted positions."""
        return self._wanted

    def expected_reads(self) -> None:
        """Returns None: no cursor is to read the entry, so it is not cached."""

    def read_ended(self, entries: list[Entry], error: BrokerError | None) -> None:
        """Ends the wait with the entries or the error."""
        if self.answer.done():  # The caller was cancelled.
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(entries)


async def read_entry(context: LedgerContext, storage_reads: StorageReads, position: Position) -> Entry:
    """Returns one entry; the cache is used and not filled.

    Raises NoSuchLedger, NoSuchEntry, PersistenceError, and TooManyRequests when too much is being read.
    """
    ledger_id, entry_id = position
    _check_position(context, position)
    # Looked up first: a hit needs no permits, no request and no future.
    cached = context.cache.get(context.single_reader, ledger_id, entry_id)
    if cached is not None:
        return cached
    return (await read_entries(context, storage_reads, EntryRange(ledger_id, entry_id, entry_id)))[0]


async def look_at_entry(context: LedgerContext, position: Position) -> Entry:
    """Returns one entry and leaves no trace in the cache: no count, no event, no mark that it was used.

    For pages that show the cache. A read that counts would change the numbers that they show. It takes no permits of the
    limit for reads: a caller looks at one entry at a time. Raises NoSuchLedger, NoSuchEntry and PersistenceError.
    """
    ledger_id, entry_id = position
    _check_position(context, position)
    cached = context.cache.peek(ledger_id, entry_id)
    if cached is not None:
        return cached
    ledgers, bytes_max = context.environment.ledgers, context.settings.read_bytes_max
    return (await awaited_reads.read_entries(ledgers, ledger_id, entry_id, entry_id, bytes_max))[0]


def _check_position(context: LedgerContext, position: Position) -> None:
    """Raises NoSuchLedger and NoSuchEntry for a position that the log does not have."""
    ledger_id, entry_id = position
    if ledger_id not in context.ledgers:
        raise NoSuchLedger(f"{context.name} has no ledger {ledger_id}")
    if not context.ledgers.has_entry(ledger_id, entry_id):
        raise NoSuchEntry(f"{context.name} has no entry {ledger_id}:{entry_id}")


async def read_entries(
    context: LedgerContext, storage_reads: StorageReads, wanted: EntryRange
) -> list[Entry]:
    """Returns consecutive entries of one ledger, which must exist; the cache is used and not filled.

    Raises PersistenceError, and TooManyRequests when too much is being read.
    """
    request = _AwaitedRead(context, wanted)
    read = EntryRead(context, storage_reads, request)
    read.begin(request.ranges())
    try:
        return await request.answer
    finally:
        # Also when the caller was cancelled while the read waited for its permits.
        read.permits.release()


async def read_readable(
    context: LedgerContext, storage_reads: StorageReads, wanted: EntryRange
) -> list[Entry]:
    """Returns consecutive entries without those that are lost; otherwise as `read_entries`."""
    try:
        return await read_entries(context, storage_reads, wanted)
    except LOST_ENTRY:
        ledger_id, first, last = wanted
        found: list[Entry] = []
        for entry_id in range(first, last + 1):
            with contextlib.suppress(*LOST_ENTRY):
                found += await read_entries(context, storage_reads, EntryRange(ledger_id, entry_id, entry_id))
        return found


async def find_newest(
    context: LedgerContext,
    storage_reads: StorageReads,
    holds: Callable[[Entry], bool],
    near_ms: int | None = None,
) -> Position | None:
    """Returns the newest entry for which the predicate holds, or None.

    A binary search, so the predicate must hold for a beginning of the managed ledger and for nothing after
    it. A lost entry tells nothing, so one near it tells in its place. The result is an entry that was read; beside many
    lost ones it may be a little older than the newest. Raises as `read_entry` for other errors.

    `near_ms`: the result was probably stored about this time. The search then begins with the ledger that was written at
    that time, by the times at which ledgers were closed. Two reads prove that the result lies in it. If they prove
    another place, because a client's clock made the times, the search goes on there.

    It reads at most 2 + log2(n + 1) entries, rounded up: n is the number of entries of that ledger, or of the whole managed
    ledger when the times of closing mislead.
    """
    search = _Search(context.ledgers)
    if near_ms is not None:
        for position in _ends_of_ledger_at(context.ledgers, near_ms):
            with contextlib.suppress(*LOST_ENTRY):  # A lost entry tells nothing; the search goes without it.
                if not search.note(await read_entry(context, storage_reads, position), holds):
                    break
    # By index over all ledgers, so each step halves the entries and not the ledgers.
    while indexes := search.indexes():
        try:
            entry = await read_entry(context, storage_reads, search.middle(indexes))
        except LOST_ENTRY:
            near = await _readable_near_middle(context, storage_reads, search)
            if near is None:
                break  # All that is left is lost. The result stays before it, so nothing after it counts as older.
            entry = near
        search.note(entry, holds)
    return search.result()


def _ends_of_ledger_at(ledgers: LedgerList, time_ms: int) -> list[Position]:
    """Returns the last entry before, and the first one after, the ledger that was written at this time."""
    before = after = None
    found = False
    for info in ledgers.infos():
        if not info.entries:
            continue
        if found:
            after = Position(info.ledger_id, 0)
            break
        if info.closed_at_ms is None or info.closed_at_ms >= time_ms:
            found = True
        else:
            before = Position(info.ledger_id, info.entries - 1)
    return [position for position in (before, after) if position is not None]


@dataclass(slots=True)
class _Search:
    """The entries among which the newest one lies.

    Its ends are positions and no indexes: trimming takes ledgers from the front during a read, which lowers every index.
    With former ones the search would end at a newer entry than those that it has looked at."""

    ledgers: LedgerList
    newest: Position | None = None
    """The newest entry that was read and for which the predicate holds."""
    newer: Position | None = None
    """The oldest entry that was read and for which it does not hold."""
    _end: Position | None = field(init=False)

    def __post_init__(self) -> None:
        entries = self.ledgers.entries
        self._end = self.ledgers.position_at(entries - 1) if entries else None

    def note(self, entry: Entry, holds: Callable[[Entry], bool]) -> bool:
        """Notes an entry that was read; returns whether the predicate holds for it."""
        if holds(entry):
            self.newest = entry.position
            return True
        self.newer = entry.position
        return False

    def indexes(self) -> range:
        """Returns the indexes, as of now, of the entries that are left; empty at the end."""
        if self._end is None:
            return range(0)
        low = 0 if self.newest is None else self.ledgers.rank(self.newest)
        high = self.ledgers.rank(self._end) if self.newer is None else self.ledgers.rank(self.newer) - 1
        return range(low, max(high, low))

    def middle(self, indexes: range) -> Position:
        """Returns the position in the middle of indexes that are not empty."""
        return self.ledgers.position_at(indexes[len(indexes) // 2])

    def result(self) -> Position | None:
        """Returns the newest entry; None when it was trimmed, and with it everything before it."""
        return self.newest if self.newest is not None and self.ledgers.rank(self.newest) else None


async def _readable_near_middle(
    context: LedgerContext, storage_reads: StorageReads, search: _Search
) -> Entry | None:
    """Returns an entry near the middle of those left, at growing distances, so that a lost ledger takes few reads.

    None when every one that was tried is lost.
    """
    indexes = search.indexes()
    for position in [search.ledgers.position_at(index) for index in _around(indexes)]:
        # One that was trimmed meanwhile tells as little as a lost one.
        with contextlib.suppress(*LOST_ENTRY):
            return await read_entry(context, storage_reads, position)
    return None


def _around(indexes: range) -> Iterator[int]:
    """Yields the indexes beside the middle at growing distances."""
    middle, distance = len(indexes) // 2, 1
    while middle + distance < len(indexes) or middle >= distance:
        if middle + distance < len(indexes):
            yield indexes[middle + distance]
        if middle >= distance:
            yield indexes[middle - distance]
        distance *= 2
