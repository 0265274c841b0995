"""Reads that belong to no cursor: a look at a message, a search by time, deduplication, expiry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

from broker.managed_ledger.entry_read import EntryRead
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.storage_reads import StorageReads
from broker.model.entry import Entry
from broker.model.errors import LOST_ENTRY, BrokerError, NoSuchEntry, NoSuchLedger
from broker.model.position import Position
from broker.model.range_set import EntryRange


class _AwaitedRead:
    """A ReadRequest of consecutive entries whose result is awaited."""

    __slots__ = ("_wanted", "answer", "reader")

    def __init__(self, context: LedgerContext, wanted: EntryRange) -> None:
        self._wanted = (wanted,)
        self.reader = context.single_reader
        """See ReadRequest."""
        self.answer: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()
        """The entries, or the error."""

    def ranges(self) -> Sequence[EntryRange]:
        """See ReadRequest."""
        return self._wanted

    def expected_reads(self) -> None:
        """See ReadRequest; no cursor is to read the entry, so it is not cached."""

    def read_ended(self, entries: list[Entry], error: BrokerError | None) -> None:
        """See ReadRequest."""
        if self.answer.done():  # The caller was cancelled.
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(entries)


async def read_entry(context: LedgerContext, storage_reads: StorageReads, position: Position) -> Entry:
    """Return one entry; the cache is used and not filled.

    Raises NoSuchLedger, NoSuchEntry, PersistenceError, and TooManyRequests when too much is being read.
    """
    ledger_id, entry_id = position
    if ledger_id not in context.ledgers:
        raise NoSuchLedger(f"{context.name} has no ledger {ledger_id}")
    if not context.ledgers.has_entry(ledger_id, entry_id):
        raise NoSuchEntry(f"{context.name} has no entry {ledger_id}:{entry_id}")
    # Looked up first: a hit needs no permits, no request and no future.
    cached = context.cache.get(context.single_reader, ledger_id, entry_id)
    if cached is not None:
        return cached
    return (await read_entries(context, storage_reads, EntryRange(ledger_id, entry_id, entry_id)))[0]


async def read_entries(
    context: LedgerContext, storage_reads: StorageReads, wanted: EntryRange
) -> list[Entry]:
    """Return consecutive entries of one ledger, which must exist; the cache is used and not filled.

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
    """Return consecutive entries as `read_entries`, without those that are lost."""
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
    context: LedgerContext, storage_reads: StorageReads, holds: Callable[[Entry], bool]
) -> Position | None:
    """Return the newest entry for which the predicate holds, or None.

    A binary search, so the predicate must hold for a beginning of the managed ledger and for nothing behind
    it. A lost entry tells nothing, so one near it tells in its place. The result is an entry that was read; beside many
    lost ones it may be a little older than the newest. Raises as `read_entry` for other errors.
    """
    ledgers = context.ledgers
    low, high = 0, ledgers.entries
    newest = None
    # By index over all ledgers, so each step halves the entries and not the ledgers.
    while low < high:
        for index in _around((low + high) // 2, low, high):
            with contextlib.suppress(*LOST_ENTRY):
                entry = await read_entry(context, storage_reads, ledgers.position_at(index))
                break
        else:
            break  # All that is left is lost. The result stays before it, so nothing behind it counts as older.
        if holds(entry):
            low, newest = index + 1, entry.position
        else:
            high = index
    return newest


def _around(middle: int, low: int, high: int) -> Iterator[int]:
    """Yields indexes in [low, high) at growing distances from the middle, so that a lost ledger takes few reads."""
    yield middle
    distance = 1
    while middle + distance < high or middle - distance >= low:
        if middle + distance < high:
            yield middle + distance
        if middle - distance >= low:
            yield middle - distance
        distance *= 2
