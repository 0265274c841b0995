"""RangeReads: a range of one ledger, from the cache where it is there and from storage where it is not (PIP-430).

What the cache has is held; each gap between is one storage read, joined with those that are under way. All gaps
are read at the same time, and the entries are delivered in order once the last has come. If a gap fails, what
there is of the range is let go of and the whole is read once from storage, past the cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.listener import StorageRead
from broker.entry_cache.reader import Reader
from broker.loop.turn import Turn
from broker.managed_ledger.pending_reads import EntriesRead, PendingReads
from broker.model.entry import Entry
from broker.model.errors import BrokerError, ReadTimedOut
from broker.model.range_set import EntryRange

log = logging.getLogger("magnetar")


class RangeReads:
    __slots__ = ("_cache", "_turn", "pending")

    def __init__(self, cache: EntryCache, pending: PendingReads, turn: Turn) -> None:
        self.pending = pending
        """The storage reads under way."""
        self._cache = cache
        self._turn = turn

    def read(
        self,
        reader: Reader,
        ledger_id: int,
        first: int,
        last: int,
        expected_reads: Callable[[], int | None],
        done: EntriesRead,
    ) -> None:
        """Entries `first` to `last`, both included and both existing. `expected_reads` is asked for each storage
        read when its entries have come: how many readers are to come, so that the cache keeps them. `done` is
        called once, never inside this call."""
        present = self._cache.get_present(reader, ledger_id, first, last)
        if not present:
            self.pending.read(reader, ledger_id, first, last, expected_reads, done)
        elif len(present) == last - first + 1:
            self._turn.confirm(lambda _: done(present, None))
        else:
            wanted = EntryRange(ledger_id, first, last)
            _GapReads(self, reader, wanted, expected_reads, done).begin(present)

    def count_misses(self, reader: Reader, entries: Sequence[Entry]) -> None:
        self._cache.count_arrived(StorageRead.MISS, reader, entries)

    def note_asked(self, read: StorageRead, reader: Reader, gap: EntryRange) -> None:
        count = gap.last - gap.first + 1
        self._cache.listener.asked_storage(read, self._cache, reader, gap.ledger_id, gap.first, count)

    def invalidate_ledger(self, ledger_id: int) -> None:
        """The ledger is gone: nobody joins its reads any more; they still serve those who wait."""
        self.pending.invalidate_ledger(ledger_id)


class _GapReads:
    """One read of which the cache has a part.

    Each entry counts once: what the cache had as found there, whatever becomes of the gaps; the entries of a gap
    that failed as missed, if the second read brings them.
    """

    __slots__ = (
        "_done",
        "_error",
        "_expected_reads",
        "_failed",
        "_open",
        "_reader",
        "_reads",
        "_slots",
        "_wanted",
    )

    def __init__(
        self,
        reads: RangeReads,
        reader: Reader,
        wanted: EntryRange,
        expected_reads: Callable[[], int | None],
        done: EntriesRead,
    ) -> None:
        self._reads = reads
        self._reader = reader
        self._wanted = wanted
        self._expected_reads = expected_reads
        self._done = done
        self._slots: dict[int, Entry] = {}
        """What has been obtained so far, by entry id."""
        self._open = 0
        self._failed: list[EntryRange] = []
        self._error: BrokerError | None = None

    def begin(self, present: Sequence[Entry]) -> None:
        self._slots = {entry.entry_id: entry for entry in present}
        gaps = gaps_between(self._wanted, list(self._slots))
        self._open = len(gaps)
        for gap in gaps:
            self._reads.pending.read(self._reader, *gap, self._expected_reads, partial(self._arrived, gap))

    def _arrived(self, gap: EntryRange, entries: list[Entry], error: BrokerError | None) -> None:
        self._open -= 1
        self._slots.update((entry.entry_id, entry) for entry in entries)
        if error is not None:
            self._error = self._error or error
            self._failed.append(gap)
        if self._open:
            return
        if self._error is None:
            _, first, last = self._wanted
            self._done([self._slots[entry_id] for entry_id in range(first, last + 1)], None)
        else:
            self._slots.clear()
            self._read_whole(self._error)

    def _read_whole(self, error: BrokerError) -> None:
        """Once more, unless the time is up."""
        if isinstance(error, ReadTimedOut):
            self._done([], error)
            return
        ledger_id, first, last = self._wanted
        log.warning("%d:%d-%d is read again as a whole: %s", ledger_id, first, last, error)
        for gap in self._failed:
            self._reads.note_asked(StorageRead.MISS, self._reader, gap)
        self._reads.pending.read(None, ledger_id, first, last, self._expected_reads, self._whole_arrived)

    def _whole_arrived(self, entries: list[Entry], error: BrokerError | None) -> None:
        for gap in self._failed:
            if error is None:
                missed = entries[gap.first - self._wanted.first : gap.last - self._wanted.first + 1]
                self._reads.count_misses(self._reader, missed)
            else:
                self._reads.note_asked(StorageRead.FAILED, self._reader, gap)
        self._done(entries, error)


def gaps_between(wanted: EntryRange, present: Sequence[int]) -> list[EntryRange]:
    """The maximal ranges of `wanted` without any of the ids `present`, which are ascending and all wanted."""
    gaps: list[EntryRange] = []
    first = wanted.first
    for entry_id in [*present, wanted.last + 1]:
        if first < entry_id:
            gaps.append(EntryRange(wanted.ledger_id, first, entry_id - 1))
        first = entry_id + 1
    return gaps
