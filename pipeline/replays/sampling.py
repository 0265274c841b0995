"""Takes parts of Accesses by entry, as a jackknife needs them. `inputs` draws the samples themselves (SHARDS).

A cache with the sample's share of the size has about the same hit ratio.

The share is the sample's share of the bytes. One entry in a hundred has one byte in a hundred only roughly, where
entries of some topics are ten times as large as those of others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from broker.recorder.sampling import sample_hash
from pipeline.machine_code import compiled
from pipeline.replays.accesses import (
    INVALIDATE,
    Accesses,
    Bools,
    Ints32,
    Ints64,
    Numbering,
)


def groups(accesses: Accesses, count: int) -> NDArray[np.int64]:
    """Returns by entry one of `count` groups, for a jackknife."""
    hashes = sample_hash(*accesses.numbering.positions(accesses.entries))
    # The highest bits decide membership in the sample, so groups come from lower ones.
    chosen: NDArray[np.int64] = ((hashes >> np.uint64(8)) & np.uint64((1 << 20) - 1)).astype(np.int64) % count
    return chosen


def only(accesses: Accesses, chosen: Bools, rate: float) -> Accesses:
    """Returns the accesses of the chosen entries, which are the share `rate` of all entries."""
    numbers = np.cumsum(chosen, dtype=np.int32) - np.int32(1)
    kept = np.flatnonzero(chosen)
    old = accesses.numbering
    places = kept if old.places is None else old.places[kept]
    numbering = Numbering(old.ledgers, old.bases, old.lowest, places)
    rows = accesses.rows
    about = rows.op <= INVALIDATE
    row, first, count = _cut(rows.first, rows.entries, about, chosen, numbers)
    taken = rows.take(row)._replace(first=first, entries=count)
    size_bytes = int(accesses.sizes.sum(dtype=np.int64))
    kept_bytes = int(accesses.sizes[kept].sum(dtype=np.int64))
    return replace(
        accesses,
        rows=taken,
        sizes=accesses.sizes[kept],
        numbering=numbering,
        rate=rate,
        # The share of the bytes that were drawn, and not `rate`: few large entries make the two differ.
        bytes_rate=accesses.bytes_rate * kept_bytes / size_bytes if kept_bytes else rate,
    )


@compiled
def _cut(
    first: Ints32, count: Ints32, about: Bools, chosen: Bools, numbers: Ints32
) -> tuple[Ints64, Ints32, Ints32]:
    """Returns (row, first entry, count) of each run of chosen entries. Other rows stay whole."""
    # Count first: machine code without lists needs the length of its arrays.
    total = 0
    for i in range(len(first)):
        if not about[i]:
            total += 1
        else:
            before = False
            for x in range(first[i], first[i] + count[i]):
                total += chosen[x] and not before
                before = chosen[x]
    row = np.empty(total, np.int64)
    new_first = np.empty(total, np.int32)
    new_count = np.empty(total, np.int32)
    at = -1
    for i in range(len(first)):
        if not about[i]:
            at += 1
            row[at], new_first[at], new_count[at] = i, 0, count[i]
            continue
        before = False
        for x in range(first[i], first[i] + count[i]):
            if chosen[x]:
                if not before:
                    at += 1
                    row[at], new_first[at], new_count[at] = i, numbers[x], 0
                new_count[at] += 1
            before = chosen[x]
    return row, new_first, new_count
