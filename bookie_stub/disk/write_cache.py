"""The write cache: entries that no checkpoint has written (BookKeeper: `WriteCache`).

There are two, `active` and `flushing`. Adds go to the active write cache. A checkpoint swaps: the active one becomes the
flushing one, an empty one becomes active. The flushing write cache is dropped when its entries, the index and the marks
are on disk, and not earlier.

The law: an entry in a write cache is newer than its copy in any entry log, so reads look here first, active before
flushing. An entry that was written again is therefore never served in its old version.

The loop's thread alone changes both. The checkpoint's thread reads the flushing one, from which only deleted ledgers are
removed meanwhile. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bookie_stub.base.record import Record
from bookie_stub.disk.arena import Arena
from bookie_stub.disk.ledger_entries import LedgerEntries, RecordRun

# The size counts what the interpreter needs besides the bytes, or a cache of small entries would take a multiple of
# `dbStorage_writeCacheMaxSizeMb`. Measured with tracemalloc; `test_write_cache.py` checks them.
ENTRY_OVERHEAD_BYTES = 200
"""Memory of a single entry besides its record."""
RUN_OVERHEAD_BYTES = 1000
"""Memory of a run besides its records."""
UNEVEN_OVERHEAD_BYTES = 80
"""Memory of each entry in a run whose ids or starts are lists instead of ranges."""
LEDGER_OVERHEAD_BYTES = 350
"""Memory of each ledger that has an entry here; with very many ledgers this is most of it."""
_RUN_BYTES_MIN = 1000
"""A shorter run is stored entry by entry: as a run it would cost more."""


class WriteCache:
    """The entries of all ledgers between two checkpoints."""

    def __init__(self) -> None:
        self.entries: dict[int, LedgerEntries] = {}
        """The entries by ledger id."""
        self.size = 0
        """Bytes of memory taken, overhead and the old versions of rewritten entries included. It never falls."""

    def put(self, ledger_id: int, entry_id: int, record: Record) -> None:
        """Stores one record, which replaces an older one of the same entry."""
        ledger = self.entries.get(ledger_id)
        if ledger is None:
            ledger = self._begin(ledger_id)
        ledger.put(entry_id, record)
        self.size += len(record) + ENTRY_OVERHEAD_BYTES

    def put_run(self, ledger_id: int, run: RecordRun) -> None:
        """Stores the entries of a run. Of two entries with the same id the later one counts."""
        ledger = self.entries.get(ledger_id)
        if ledger is None:
            ledger = self._begin(ledger_id)
        if len(run.records) >= _RUN_BYTES_MIN and _ascending(run.entry_ids) and ledger.put_run(run):
            # Ranges take no memory per entry, tuples take a pointer and an int for each.
            even = type(run.entry_ids) is range and type(run.starts) is range
            self.size += len(run.records) + RUN_OVERHEAD_BYTES
            self.size += 0 if even else UNEVEN_OVERHEAD_BYTES * len(run.entry_ids)
        else:
            for entry_id, record in run.items():
                ledger.put(entry_id, record)
            self.size += len(run.records) + ENTRY_OVERHEAD_BYTES * len(run.entry_ids)

    def _begin(self, ledger_id: int) -> LedgerEntries:
        ledger = self.entries[ledger_id] = LedgerEntries()
        self.size += LEDGER_OVERHEAD_BYTES
        return ledger

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Returns a copy of an entry's newest record, None without one."""
        ledger = self.entries.get(ledger_id)
        return None if ledger is None else ledger.get(entry_id)

    def count(self) -> int:
        """Returns about the number of entries; see `LedgerEntries.__len__`."""
        # `list` copies in one step; another thread may remove a ledger meanwhile.
        return sum(map(len, list(self.entries.values())))


def _ascending(entry_ids: Sequence[int]) -> bool:
    if type(entry_ids) is range:
        return True
    return all(earlier < later for earlier, later in pairwise(entry_ids))


class WriteCaches:
    """The active and the flushing write cache, as BookKeeper's SingleDirectoryDbLedgerStorage has them."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` bounds both together; one large run can pass it."""
        self.active_bytes_max = bytes_max // 2
        """The size at which the active write cache is full."""
        self.active = WriteCache()
        """The one that takes adds."""
        self.flushing: WriteCache | None = None
        """The one that a checkpoint writes out; None while no checkpoint is running."""
        self.arena = Arena(bytes_max)
        """Memory for runs and for large adds, which the wire receives into it."""

    def put_run(
        self, ledger_id: int, entry_ids: Sequence[int], records: bytes, starts: Sequence[int]
    ) -> Record:
        """Stores entries as active, and returns their records' new memory.

        The caller gives the returned memory to the journal, so that `records` itself is freed at once.
        """
        if len(entry_ids) == 1:
            self.active.put(ledger_id, entry_ids[0], records)
            return records
        # Small runs are split into entries anyhow, so a copy into the arena would be made for nothing.
        kept = self.arena.store(records) if len(records) >= _RUN_BYTES_MIN else records
        self.active.put_run(ledger_id, RecordRun(entry_ids, kept, starts))
        return kept

    @property
    def active_full(self) -> bool:
        """True when a checkpoint is due."""
        return self.active.size >= self.active_bytes_max

    @property
    def full(self) -> bool:
        """True when adds must wait. The active write cache is full, and the flushing one is not written out yet."""
        return self.flushing is not None and self.active_full

    def swap(self) -> WriteCache:
        """Makes the active write cache the flushing one and returns it. The last flush must have ended."""
        assert self.flushing is None, "the last flush has not ended"
        # Both in the loop's thread between two callbacks, so no add can fall between the two.
        self.flushing = self.active
        self.active = WriteCache()
        return self.flushing

    def flushed(self) -> None:
        """Drops the flushing write cache. To be called when its checkpoint is done, marks included."""
        self.flushing = None

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Returns a copy of an entry's newest record, or None."""
        record = self.active.get(ledger_id, entry_id)
        if record is None and self.flushing is not None:
            record = self.flushing.get(ledger_id, entry_id)
        return record

    def entries_of(self, ledger_id: int) -> tuple[LedgerEntries, ...]:
        """Returns a ledger's entries in each write cache, active first.

        A write cache without any of them is left out.
        """
        caches = (self.active,) if self.flushing is None else (self.active, self.flushing)
        return tuple(cache.entries[ledger_id] for cache in caches if ledger_id in cache.entries)

    def forget(self, ledger_id: int) -> None:
        """Removes a deleted ledger. Entries that a running flush has read already go with the next checkpoint."""
        # The size stays as it is: the pieces of a run are freed with their whole block, which other ledgers share.
        self.active.entries.pop(ledger_id, None)
        if self.flushing is not None:
            self.flushing.entries.pop(ledger_id, None)

    @property
    def size(self) -> int:
        """Bytes of memory taken by both."""
        # Read once: a journal's thread asks too, and the loop may drop the flushing one meanwhile.
        flushing = self.flushing
        return self.active.size + (flushing.size if flushing is not None else 0)

    def count(self) -> int:
        """Returns about the number of entries in both."""
        return self.active.count() + (self.flushing.count() if self.flushing is not None else 0)
