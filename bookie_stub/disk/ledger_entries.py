"""What a half of the write cache has of one ledger: runs of records as they came, and records one by one.

A run is one piece of memory and costs nothing for each of its entries. Only what lies behind all that is here already
becomes a run; whatever else comes, such as an entry that is written again, is kept by itself and counts before the
runs. So of two records with one id the later one is found. Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain

from bookie_stub.base.record import Record


class Run:
    __slots__ = ("entry_ids", "records", "starts")

    def __init__(self, entry_ids: Sequence[int], records: Record, starts: Sequence[int]) -> None:
        """`entry_ids` ascending, without duplicates; `starts`: where each one's record begins in `records`."""
        self.entry_ids = entry_ids
        self.records = records
        self.starts = starts

    def place_of(self, entry_id: int) -> int:
        """-1 when it is not here."""
        place = bisect_left(self.entry_ids, entry_id)
        return place if place < len(self.entry_ids) and self.entry_ids[place] == entry_id else -1

    def record_at(self, place: int) -> bytes:
        end = self.starts[place + 1] if place + 1 < len(self.starts) else len(self.records)
        return bytes(self.records[self.starts[place] : end])

    def items(self) -> Iterator[tuple[int, bytes]]:
        records, start = self.records, 0
        for entry_id, end in zip(self.entry_ids, (*self.starts[1:], len(records)), strict=True):
            yield entry_id, bytes(records[start:end])
            start = end


class LedgerEntries:
    __slots__ = ("_firsts", "_last", "_runs", "_singles")

    def __init__(self) -> None:
        self._singles: dict[int, Record] = {}
        self._runs: list[Run] = []
        self._firsts: list[int] = []
        """The first id of each run, ascending."""
        self._last = -1
        """The highest id in all of it."""

    def put(self, entry_id: int, record: Record) -> None:
        self._singles[entry_id] = record
        if entry_id > self._last:
            self._last = entry_id

    def put_run(self, run: Run) -> bool:
        """False when the run is not behind everything: then its records are to be put one by one."""
        if run.entry_ids[0] <= self._last:
            return False
        self._runs.append(run)
        self._firsts.append(run.entry_ids[0])
        self._last = run.entry_ids[-1]
        return True

    def get(self, entry_id: int) -> bytes | None:
        record = self._singles.get(entry_id)
        if record is not None:
            return record if type(record) is bytes else bytes(record)
        run = self._run_before(entry_id)
        place = -1 if run is None else run.place_of(entry_id)
        return None if run is None or place < 0 else run.record_at(place)

    def __contains__(self, entry_id: int) -> bool:
        if entry_id in self._singles:
            return True
        run = self._run_before(entry_id)
        return run is not None and run.place_of(entry_id) >= 0

    def _run_before(self, entry_id: int) -> Run | None:
        """The only one that may have it."""
        place = bisect_right(self._firsts, entry_id)
        return self._runs[place - 1] if place else None

    def in_order(self) -> Iterator[tuple[int, bytes]]:
        """Ids and records, ascending."""
        singles = self._singles
        alone = ((entry_id, bytes(singles[entry_id])) for entry_id in sorted(singles))
        if not self._runs:
            return alone
        in_runs = chain.from_iterable([run.items() for run in self._runs])
        return merge(alone, (item for item in in_runs if item[0] not in singles)) if singles else in_runs

    def ids(self) -> list[int]:
        """Ascending."""
        return sorted({*self._singles, *chain.from_iterable([run.entry_ids for run in self._runs])})

    def __len__(self) -> int:
        """Entries; one that was written again behind a run counts twice."""
        return len(self._singles) + sum([len(run.entry_ids) for run in self._runs])

    def pieces(self) -> Iterator[Record]:
        """All the memory that is held, for who gives it back slowly."""
        return chain(self._singles.values(), [run.records for run in self._runs])
