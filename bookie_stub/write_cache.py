"""The write cache: entries between their add and their place in an entry log, in two halves.

Adds go to the active half; a checkpoint swaps the halves and writes the other one out, and drops it only
when log, index and mark are safe. What is in a half is served in preference to any log, so a rewritten
entry is never seen in its old version. Changed by the loop's thread alone; the checkpoint's thread reads
the half that was swapped out, from which only deleted ledgers still go. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

ENTRY_OVERHEAD_BYTES = 200
"""What the interpreter needs for an entry besides its bytes; small entries are mostly this."""


class CacheHalf:
    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: dict[int, dict[int, bytes]] = {}
        """Ledger id to entry id to record (with its length)."""
        self.size = 0
        """Bytes of memory put, a rewritten entry's old ones included."""

    def put(self, ledger_id: int, entry_id: int, record: bytes) -> None:
        ledger = self.entries.get(ledger_id)
        if ledger is None:
            ledger = self.entries[ledger_id] = {}
        ledger[entry_id] = record
        self.size += len(record) + ENTRY_OVERHEAD_BYTES

    def put_run(self, ledger_id: int, entry_ids: Sequence[int], records: Sequence[bytes], size: int) -> None:
        """Several entries at once, the later one of two with the same id; `size`: bytes of all records."""
        ledger = self.entries.get(ledger_id)
        if ledger is None:
            ledger = self.entries[ledger_id] = {}
        ledger.update(zip(entry_ids, records, strict=True))
        self.size += size + ENTRY_OVERHEAD_BYTES * len(records)

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        ledger = self.entries.get(ledger_id)
        return None if ledger is None else ledger.get(entry_id)

    def count(self) -> int:
        return sum(map(len, list(self.entries.values())))


class WriteCache:
    __slots__ = ("active", "flushing", "half_bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.half_bytes_max = bytes_max // 2
        self.active = CacheHalf()
        self.flushing: CacheHalf | None = None

    @property
    def half_full(self) -> bool:
        return self.active.size >= self.half_bytes_max

    @property
    def no_room(self) -> bool:
        """Both halves are full, or the other one is not yet written out."""
        return self.flushing is not None and self.half_full

    def swap(self) -> CacheHalf:
        """The half to write out. Not while another one is being written."""
        assert self.flushing is None, "the last flush has not ended"
        self.flushing = self.active
        self.active = CacheHalf()
        return self.flushing

    def flushed(self) -> None:
        self.flushing = None

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        record = self.active.get(ledger_id, entry_id)
        if record is None and self.flushing is not None:
            record = self.flushing.get(ledger_id, entry_id)
        return record

    def halves_of(self, ledger_id: int) -> tuple[dict[int, bytes], ...]:
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
