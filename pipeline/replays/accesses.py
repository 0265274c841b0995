"""Accesses: a record made ready to be replayed as often as wanted, in arrays.

A row is a run of entries that were appended, read, asked of storage or handed over together, or a pass. Entries have
dense numbers, and neighbours in a ledger have neighbouring ones, so that a run is a range. What no setting of the
cache changes is worked out once: how many readers an entry expects, how large it is, what a storage read came to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints8 = NDArray[np.int8]
Ints32 = NDArray[np.int32]
Ints64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

APPEND: Final = 0
"""`detail` = expected reads, NOT_COUNTED, or NOT_OFFERED to the cache."""
FETCH: Final = 1
"""Came from storage; `detail` likewise."""
READ: Final = 2
"""Was read and found in the recorded cache; `detail` = expected reads if it has to come from storage."""
ASK: Final = 3
"""Was read and not found; `detail` = an outcome, plus FORCED where it was asked of storage although it was cached."""
DELIVER: Final = 4
"""Written to a consumer; `detail` 1 = the recorded cache did not hold it any more."""
PUT_BACK: Final = 5
"""Waits to be read once more; `detail` as of DELIVER."""
INVALIDATE: Final = 6
"""`detail` = number of the reason."""
TICK: Final = 7
"""`entries` = visits at most, as for SIZE_CHECK."""
SIZE_CHECK: Final = 8
CONFIGURE: Final = 9
"""`detail` = which of the run's settings hold from here on."""

NOT_COUNTED: Final = -1
NOT_OFFERED: Final = -2

CAME_TO_NOTHING: Final = 0
MISSED: Final = 1
COALESCED: Final = 2
FORCED: Final = 4

TURN_NS: Final = 2_000_000
"""A busy turn of the broker's loop: so long a size check may wait, where the record does not have the end of one."""
LOOKS_ONLY: Final = "__peek"
"""The reader for nobody's subscription, which fills no cache."""


class Rows(NamedTuple):
    """Parallel arrays, in the order of the events."""

    op: Ints8
    at_ns: Ints64
    """The monotonic time by which the cache decided."""
    first: Ints32
    """Dense number of the first entry."""
    entries: Ints32
    detail: Ints32
    ledger: Ints32
    """Dense number of the ledger."""

    def take(self, chosen: NDArray[np.intp] | Bools) -> Rows:
        return Rows(*[column[chosen] for column in self])  # type: ignore[arg-type]


class Numbering(NamedTuple):
    """Which entry a dense number stands for."""

    ledgers: Ints64
    """Ids, by dense number of the ledger."""
    bases: Ints64
    """Number of the first place of each ledger, and behind the last one the number of all places."""
    lowest: Ints64
    """Entry id of that place."""
    places: Ints64 | None
    """The place of each entry, where not every place between the lowest and the highest entry is one."""

    def positions(self, entries: int) -> tuple[Ints64, Ints64]:
        """Ledger and entry id of each dense number."""
        places = np.arange(entries, dtype=np.int64) if self.places is None else self.places
        ledger = np.searchsorted(self.bases, places, side="right") - 1
        return self.ledgers[ledger], places - self.bases[ledger] + self.lowest[ledger]


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    broker: str
    start: str
    rows: Rows
    sizes: Ints32
    """Bytes of each entry."""
    numbering: Numbering
    settings: tuple[str, ...]
    """Of the cache, in the order in which they held (`EntryCacheSettings.to_text`)."""
    tick_ns: int
    """How long the broker waited between two periodic passes."""
    rate: float = 1.0
    """The share of the entries that is in here."""
    bytes_rate: float = 1.0
    """The share of the bytes, which is the share of the cache that meets about the same hit ratio. As `rate` where
    the recorder drew the sample, since nobody knows the rest."""

    @property
    def entries(self) -> int:
        return len(self.sizes)

    @property
    def events(self) -> int:
        """Single appends and reads."""
        counted = (self.rows.op == APPEND) | (self.rows.op == READ) | (self.rows.op == ASK)
        return int(self.rows.entries[counted].sum(dtype=np.int64))


def runs_expanded(first: Ints32, count: Ints32) -> tuple[Ints64, Ints64]:
    """(index of the row, number of the entry) of each entry of the runs, in order."""
    row = np.repeat(np.arange(len(count), dtype=np.int64), count)
    ends = np.cumsum(count, dtype=np.int64)
    within = np.arange(len(row), dtype=np.int64) - np.repeat(ends - count, count)
    return row, np.repeat(first.astype(np.int64), count) + within
