"""LedgerEntries: one ledger's entries in a write cache, runs and single records.

A run is one piece of memory with the records of many entries. It costs nothing per entry, so most entries of a busy
ledger are in runs. The law that makes this simple: runs are ascending and do not overlap. Only a run that lies after
everything already here is stored as a run; any other entry, such as one that is written again, becomes a single record.
Single records are therefore newer than the runs, and are looked at first.

One thread changes it; another may read it when no changes are made any more. Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain

from bookie_stub.base.record import Record


class RecordRun:
    """Records of one ledger in one piece of memory. Their entry ids ascend."""

    __slots__ = ("entry_ids", "records", "starts")

    def __init__(self, entry_ids: Sequence[int], records: Record, starts: Sequence[int]) -> None:
        self.entry_ids = entry_ids
        """The ids, ascending and without duplicates; a range when they follow one another."""
        self.records = records
        """The records one after the other."""
        self.starts = starts
        """The offset of each record in `records`."""

    def place_of(self, entry_id: int) -> int:
        """Returns the place of an entry in the run, or -1."""
        place = bisect_left(self.entry_ids, entry_id)
        return place if place < len(self.entry_ids) and self.entry_ids[place] == entry_id else -1

    def record_at(self, place: int) -> bytes:
        """Returns a copy of the record at a place. A view would keep the whole block of the arena alive."""
        end = self.starts[place + 1] if place + 1 < len(self.starts) else len(self.records)
        return bytes(self.records[self.starts[place] : end])

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yields (entry id, copy of the record), ascending."""
        records, start = self.records, 0
        for entry_id, end in zip(self.entry_ids, (*self.starts[1:], len(records)), strict=True):
            yield entry_id, bytes(records[start:end])
            start = end


class LedgerEntries:
    """The entries of one ledger, found by id."""

    __slots__ = ("_firsts", "_last", "_runs", "_singles")

    def __init__(self) -> None:
        self._singles: dict[int, Record] = {}
        self._runs: list[RecordRun] = []
        self._firsts: list[int] = []
        """The first id of each run, ascending."""
        self._last = -1
        """The highest id of all."""

    def put(self, entry_id: int, record: Record) -> None:
        """Stores one record, which replaces an older one of the same id."""
        self._singles[entry_id] = record
        if entry_id > self._last:
            self._last = entry_id

    def put_run(self, run: RecordRun) -> bool:
        """Stores a run if it is after everything, else returns False. The caller then puts its records one by one."""
        # It may rewrite single records, which are looked at first: its versions would stay hidden by them.
        if run.entry_ids[0] <= self._last:
            return False
        self._runs.append(run)
        self._firsts.append(run.entry_ids[0])
        self._last = run.entry_ids[-1]
        return True

    def get(self, entry_id: int) -> bytes | None:
        """Returns a copy of an entry's newest record, None without one."""
        record = self._singles.get(entry_id)
        if record is not None:
            # A view is copied: it would keep a whole block of the arena alive as long as the reader has it.
            return record if type(record) is bytes else bytes(record)
        run = self._run_before(entry_id)
        place = -1 if run is None else run.place_of(entry_id)
        return None if run is None or place < 0 else run.record_at(place)

    def __contains__(self, entry_id: int) -> bool:
        if entry_id in self._singles:
            return True
        run = self._run_before(entry_id)
        return run is not None and run.place_of(entry_id) >= 0

    def _run_before(self, entry_id: int) -> RecordRun | None:
        """Returns the only run that can have the id, or None."""
        place = bisect_right(self._firsts, entry_id)
        return self._runs[place - 1] if place else None

    def in_order(self) -> Iterator[tuple[int, bytes]]:
        """Yields (entry id, copy of the newest record), ascending."""
        singles = self._singles
        alone = ((entry_id, bytes(singles[entry_id])) for entry_id in sorted(singles))
        if not self._runs:
            return alone
        # Runs are ascending and disjoint, so joining them needs no sort. A single record replaces the one in its run.
        in_runs = chain.from_iterable([run.items() for run in self._runs])
        return merge(alone, (item for item in in_runs if item[0] not in singles)) if singles else in_runs

    def ids(self) -> list[int]:
        """Returns the ids of all entries, ascending."""
        return sorted({*self._singles, *chain.from_iterable([run.entry_ids for run in self._runs])})

    def __len__(self) -> int:
        """Returns about the number of entries. One that is in a run and was written again counts twice."""
        return len(self._singles) + sum([len(run.entry_ids) for run in self._runs])

    def pieces(self) -> Iterator[Record]:
        """Yields all memory that is held, piece by piece. The checkpoint frees it a little at a time."""
        return chain(self._singles.values(), [run.records for run in self._runs])
