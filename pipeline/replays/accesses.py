"""Accesses: one broker lifetime as arrays, ready for any number of replays.

A row is a pass, or a run of entries that were appended, read, requested from storage or delivered together. Entries have
dense numbers, and neighbours in a ledger have neighbouring numbers, so that a run is a range. Facts that no setting
of the cache changes are computed once: expected reads of an entry, its size, the outcome of a storage read.

`making.accesses_of` makes them, `sampling` takes a part of them, `replay` feeds them to the machine code of `kernel`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints8 = NDArray[np.int8]
"""Kinds of rows."""
Ints32 = NDArray[np.int32]
"""Dense numbers and counts. A broker lifetime has fewer than 2 ** 31 entries."""
Ints64 = NDArray[np.int64]
"""Times, ledger ids and sums."""
Bools = NDArray[np.bool_]
"""One truth value per row or entry."""

APPEND: Final = 0
"""Appended; `detail` = expected reads, NOT_COUNTED, or NOT_OFFERED."""
FETCH: Final = 1
"""Arrived from storage; `detail` as of APPEND."""
READ: Final = 2
"""Read from the recorded cache. `detail` = expected reads if a replayed cache has to fetch it."""
STORAGE_READ: Final = 3
"""Read, absent from the recorded cache and requested from storage. `detail` = an outcome, plus FORCED."""
DELIVER: Final = 4
"""Written to a consumer. `detail` 1 = the recorded cache had evicted it before."""
REDELIVERY: Final = 5
"""Added to a redelivery queue, so it is to be read again. `detail` as of DELIVER."""
INVALIDATE: Final = 6
"""Removed because it is no longer needed. `detail` = number of the reason."""
TICK: Final = 7
"""A pass over expired entries. `entries` = the largest number of slots it visits, as for SIZE_CHECK."""
SIZE_CHECK: Final = 8
"""A pass that evicts for the size, at the end of a turn."""
CONFIGURE: Final = 9
"""Settings change; `detail` = the index of the new ones in `Accesses.settings`."""

NOT_COUNTED: Final = -1
"""Cached without a count of expected reads."""
NOT_OFFERED: Final = -2
"""Not inserted into the cache."""

CAME_TO_NOTHING: Final = 0
"""An outcome: the read failed or was given up."""
MISSED: Final = 1
"""An outcome: read from a bookie."""
COALESCED: Final = 2
"""An outcome: received from a read that another reader had started."""
FORCED: Final = 4
"""Added to an outcome where the broker read from storage although the entry was cached."""

REST_NS: Final = 100_000_000
"""Time without a pass after which the recorded broker is taken to rest, because its cache was empty.

A broker looks at an empty cache this often. A shorter time without a pass may be a turn of the loop that took long.
"""


class AccessRows(NamedTuple):
    """The rows as parallel arrays, in the order of the events."""

    op: Ints8
    """One of the numbers above."""
    at_ns: Ints64
    """The broker's monotonic time, which the cache decides by."""
    first: Ints32
    """Dense number of the first entry."""
    entries: Ints32
    """The length of the run."""
    detail: Ints32
    """A number whose meaning stands at each kind of row."""
    ledger: Ints32
    """Dense number of the ledger."""

    def take(self, chosen: NDArray[np.intp] | Bools) -> AccessRows:
        """Returns the chosen rows, by index or by truth value."""
        return AccessRows(*[column[chosen] for column in self])  # type: ignore[arg-type]


class Numbering(NamedTuple):
    """Translates dense numbers into positions."""

    ledgers: Ints64
    """Ids, by dense number of the ledger."""
    bases: Ints64
    """The first place of each ledger, then the number of all places."""
    lowest: Ints64
    """The entry id at the first place of each ledger."""
    places: Ints64 | None
    """The place of each entry; None where every place is an entry."""

    def positions(self, entries: int) -> tuple[Ints64, Ints64]:
        """Returns ledger id and entry id of each dense number."""
        places = np.arange(entries, dtype=np.int64) if self.places is None else self.places
        ledger = np.searchsorted(self.bases, places, side="right") - 1
        return self.ledgers[ledger], places - self.bases[ledger] + self.lowest[ledger]


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    """One broker lifetime, ready for replays."""

    broker: str
    """The broker's name in the names of the folders."""
    start: str
    """When the broker started, as in the names of the files."""
    rows: AccessRows
    """In the order of the events."""
    sizes: Ints32
    """Bytes of each entry, by dense number."""
    numbering: Numbering
    """Of `rows` and `sizes`."""
    settings: tuple[str, ...]
    """The cache's settings in the order in which they held, as `CacheSettings.to_text` writes them."""
    tick_ns: int
    """The time between two periodic passes."""
    rate: float = 1.0
    """The share of the entries that these accesses have, above 0 and at most 1."""
    bytes_rate: float = 1.0
    """The share of the bytes.

    A cache of this share of the size has about the same hit ratio.

    Equal to `rate` where the recorder drew the sample, because the other entries' sizes are unknown.
    """

    @property
    def entries(self) -> int:
        """The number of different entries."""
        return len(self.sizes)

    @property
    def events(self) -> int:
        """Appends and reads, counted by entry."""
        counted = (self.rows.op == APPEND) | (self.rows.op == READ) | (self.rows.op == STORAGE_READ)
        return int(self.rows.entries[counted].sum(dtype=np.int64))


def runs_expanded(first: Ints32, count: Ints32) -> tuple[Ints64, Ints64]:
    """Returns the row and the number of each entry of the runs, in order."""
    row = np.repeat(np.arange(len(count), dtype=np.int64), count)
    ends = np.cumsum(count, dtype=np.int64)
    within = np.arange(len(row), dtype=np.int64) - np.repeat(ends - count, count)
    return row, np.repeat(first.astype(np.int64), count) + within
