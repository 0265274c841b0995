"""Encodes the list of a ledger's entries for BookKeeper's v3 wire (GET_LIST_OF_ENTRIES_OF_LEDGER).

The format of BookKeeper's AvailabilityOfEntriesOfLedger. A head of 64 bytes: int32 version 0, int32 number of groups, zeros.
A group stands for runs of equal length at equal distances, as striping makes them: int64 first id, int64 first id of the
last run, int32 ids in each run, int32 distance from run to run (0 for a single run). Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

_VERSION = 0
_HEAD_BYTES = 64
_HEAD = struct.Struct(">ii")
_GROUP = struct.Struct(">qqii")
_INT_MAX = 2**31 - 1
IdRun = tuple[int, int]
"""(first id, how many)"""


def encode_entry_runs(entry_ids: Iterable[int]) -> bytes:
    """Encodes ascending entry ids; an id that is repeated counts once."""
    groups = [_GROUP.pack(*group) for group in _groups(_runs(entry_ids))]
    return b"".join((_HEAD.pack(_VERSION, len(groups)).ljust(_HEAD_BYTES, b"\0"), *groups))


def _runs(entry_ids: Iterable[int]) -> Iterator[IdRun]:
    first, count = 0, 0
    for entry_id in entry_ids:
        if count and entry_id == first + count and count < _INT_MAX:
            count += 1
        elif not count or entry_id >= first + count:
            if count:
                yield first, count
            first, count = entry_id, 1
    if count:
        yield first, count


def _groups(runs: Iterable[IdRun]) -> Iterator[tuple[int, int, int, int]]:
    """Yields (first id, first id of last run, ids per run, distance)."""
    start, last, size, distance = 0, 0, 0, 0
    for first, count in runs:
        gap = first - last
        if count == size and gap <= _INT_MAX and distance in (0, gap):
            last, distance = first, gap
            continue
        if size:
            yield start, last, size, distance
        start, last, size, distance = first, first, count, 0
    if size:
        yield start, last, size, distance
