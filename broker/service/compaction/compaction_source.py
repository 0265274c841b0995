"""The entries of one compaction, in order.

First come those of the former compacted ledger, then those of the log after its horizon.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Final, NamedTuple

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.ledgers import Ledgers
from broker.compaction.compacted_entry import decode
from broker.managed_ledger.ledger_list import LedgerList
from broker.service.compaction.compacted_ledger import CompactedLedger
from foundation.model.entry import Entry
from foundation.model.errors import ReadTimedOut
from foundation.model.position import Position
from foundation.value import Value

RUN_ENTRIES_MAX: Final = 400
"""Entries of one read. More would hold the event loop for longer at a time: one costs about 10 µs."""
RUN_BYTES_MAX: Final = 1 << 20
"""Bytes of one read."""
_WANTED: Final = re.compile(rb"[^\0]+(?:\0{1,16}[^\0]+)*")
"""Entries that are kept, with short gaps between them: reading over a gap is cheaper than two reads."""


class SourceSegment(NamedTuple):
    """Consecutive entries of one ledger."""

    ledger_id: int
    """The ledger in BookKeeper."""
    first: int
    """First entry."""
    last: int
    """Last entry, included."""
    compacted: bool
    """True for the former compacted ledger, False for a ledger of the log."""


class NumberedRun(NamedTuple):
    """Consecutive entries that one read returned."""

    number: int
    """Number of the first one among all entries of the compaction."""
    entries: list[Entry]
    """The entries with their positions in the log."""


def segments_of(
    ledgers: LedgerList, former: CompactedLedger | None, through: Position
) -> list[SourceSegment]:
    """Returns what a compaction reads: everything up to `through`, in the order of the positions."""
    segments: list[SourceSegment] = []
    start = ledgers.first()
    if former is not None:
        start = ledgers.next_valid(former.horizon)
        if former.entries:
            segments.append(SourceSegment(former.ledger_id, 0, former.entries - 1, compacted=True))
    for info in ledgers.infos():
        if start.ledger_id <= info.ledger_id <= through.ledger_id:
            first = start.entry_id if info.ledger_id == start.ledger_id else 0
            last = through.entry_id if info.ledger_id == through.ledger_id else info.entries - 1
            if first <= last:
                segments.append(SourceSegment(info.ledger_id, first, last, compacted=False))
    return segments


class CompactionSource(Value):
    """Reads the segments of one compaction, as often as its passes want."""

    ledgers: Ledgers
    """The ledgers that hold the entries."""
    segments: list[SourceSegment]
    """Result of `segments_of`."""
    timeout_s: float
    """Limit of one read (`brokerServiceCompactionPhaseOneLoopTimeInSeconds`)."""

    @property
    def entries(self) -> int:
        """Number of all entries."""
        return sum(one.last - one.first + 1 for one in self.segments)

    async def runs(self, fates: bytes | None = None) -> AsyncGenerator[NumberedRun]:
        """Yields all entries in runs; with `fates`, those alone that are kept, and a few between them.

        One run is read ahead while the caller works on the one before. Raises as a read, and ReadTimedOut.
        """
        before: NumberedRun | None = None
        ranges = self._numbered() if fates is None else self._wanted(fates)
        for number, segment in ranges:
            at = segment.first
            while at <= segment.last:
                reading = asyncio.ensure_future(self._read(segment, at))
                try:
                    if before is not None:
                        yield before
                    entries = await reading
                finally:
                    reading.cancel()
                before = NumberedRun(number + at - segment.first, entries)
                at += len(entries)
        if before is not None:
            yield before

    def _numbered(self) -> Iterator[tuple[int, SourceSegment]]:
        number = 0
        for segment in self.segments:
            yield number, segment
            number += segment.last - segment.first + 1

    def _wanted(self, fates: bytes) -> Iterator[tuple[int, SourceSegment]]:
        for number, segment in self._numbered():
            end = number + segment.last - segment.first + 1
            for found in _WANTED.finditer(fates, number, end):
                first = segment.first + found.start() - number
                last = segment.first + found.end() - 1 - number
                yield found.start(), segment._replace(first=first, last=last)

    async def _read(self, segment: SourceSegment, at: int) -> list[Entry]:
        last = min(segment.last, at + RUN_ENTRIES_MAX - 1)
        read = read_entries(self.ledgers, segment.ledger_id, at, last, RUN_BYTES_MAX)
        try:
            entries = await asyncio.wait_for(read, self.timeout_s)
        except TimeoutError:
            raise ReadTimedOut(
                f"entry {segment.ledger_id}:{at} was not read within {self.timeout_s} s"
                " (brokerServiceCompactionPhaseOneLoopTimeInSeconds)"
            ) from None
        return [decode(entry) for entry in entries] if segment.compacted else entries
