"""The write cache: entries between their add and their place in an entry log, in two halves.

Adds go to the active half; a checkpoint swaps the halves and writes the other one out, and drops it only
when log, index and mark are safe. What is in a half is served in preference to any log, so a rewritten
entry is never seen in its old version. Changed by the loop's thread alone; the checkpoint's thread reads
the half that was swapped out, from which only deleted ledgers still go. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bookie_stub.base.record import Record
from bookie_stub.disk.arena import Arena
from bookie_stub.disk.ledger_entries import LedgerEntries, Run

ENTRY_OVERHEAD_BYTES = 200
"""What the interpreter needs for an entry by itself besides its bytes; small ones are mostly this."""
RUN_OVERHEAD_BYTES = 1000
"""The same for a run,"""
UNEVEN_OVERHEAD_BYTES = 80
"""and for each of its entries when their ids or lengths follow no rule."""
LEDGER_OVERHEAD_BYTES = 350
"""And for each ledger that a half has something of: with very many ledgers this is most of it."""
_RUN_BYTES_MIN = 1000
"""Less is kept entry by entry: a run has its price too."""


class WriteCache:
    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: dict[int, LedgerEntries] = {}
        """By ledger id."""
        self.size = 0
        """Bytes of memory put, a rewritten entry's old ones included."""

    def put(self, ledger_id: int, entry_id: int, record: Record) -> None:
        ledger = self.entries.get(ledger_id)
        if ledger is None:
            ledger = self._begin(ledger_id)
        ledger.put(entry_id, record)
        self.size += len(record) + ENTRY_OVERHEAD_BYTES

    def put_run(self, ledger_id: int, run: Run) -> None:
        """Several entries at once, the later one of two with the same id."""
        ledger = self.entries.get(ledger_id)
        if ledger is None:
            ledger = self._begin(ledger_id)
        if len(run.records) >= _RUN_BYTES_MIN and _ascending(run.entry_ids) and ledger.put_run(run):
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
        ledger = self.entries.get(ledger_id)
        return None if ledger is None else ledger.get(entry_id)

    def count(self) -> int:
        return sum(map(len, list(self.entries.values())))


def _ascending(entry_ids: Sequence[int]) -> bool:
    if type(entry_ids) is range:
        return True
    return all(earlier < later for earlier, later in pairwise(entry_ids))


class WriteCaches:
    __slots__ = ("active", "active_bytes_max", "arena", "flushing")

    def __init__(self, bytes_max: int) -> None:
        self.active_bytes_max = bytes_max // 2
        self.active = WriteCache()
        self.flushing: WriteCache | None = None
        self.arena = Arena(bytes_max)
        """Where what comes in large pieces is kept."""

    def put_run(
        self, ledger_id: int, entry_ids: Sequence[int], records: bytes, starts: Sequence[int]
    ) -> Record:
        """Into the active half; returns the records where they are now."""
        if len(entry_ids) == 1:
            self.active.put(ledger_id, entry_ids[0], records)
            return records
        kept = self.arena.store(records) if len(records) >= _RUN_BYTES_MIN else records
        self.active.put_run(ledger_id, Run(entry_ids, kept, starts))
        return kept

    @property
    def active_full(self) -> bool:
        return self.active.size >= self.active_bytes_max

    @property
    def full(self) -> bool:
        """Both halves are full, or the other one is not yet written out."""
        return self.flushing is not None and self.active_full

    def swap(self) -> WriteCache:
        """The half to write out. Not while another one is being written."""
        assert self.flushing is None, "the last flush has not ended"
        self.flushing = self.active
        self.active = WriteCache()
        return self.flushing

    def flushed(self) -> None:
        self.flushing = None

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        record = self.active.get(ledger_id, entry_id)
        if record is None and self.flushing is not None:
            record = self.flushing.get(ledger_id, entry_id)
        return record

    def entries_of(self, ledger_id: int) -> tuple[LedgerEntries, ...]:
        """The ledger's entries in each half that has some, newest first."""
        halves = (self.active,) if self.flushing is None else (self.active, self.flushing)
        return tuple(half.entries[ledger_id] for half in halves if ledger_id in half.entries)

    def forget(self, ledger_id: int) -> None:
        """A deleted ledger. What a running flush has already taken goes with the next checkpoint."""
        self.active.entries.pop(ledger_id, None)
        if self.flushing is not None:
            self.flushing.entries.pop(ledger_id, None)

    @property
    def size(self) -> int:
        return self.active.size + (self.flushing.size if self.flushing is not None else 0)

    def count(self) -> int:
        return self.active.count() + (self.flushing.count() if self.flushing is not None else 0)
