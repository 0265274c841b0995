"""A cache as arrays, for the machine code: 16 bytes per entry, a ring of slots for the removal queue, and counters."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.replays import counters as c

ENTRY: Final = np.dtype(
    [
        ("slot", np.uint32),
        ("size", np.int32),
        ("expected", np.int16),
        ("requeues", np.int16),
        ("flags", np.uint8),
    ],
    align=True,
)
CACHED, ACCESSED, PENDING = 1, 2, 4
"""PENDING: it was asked of storage in this replay, so that what is fetched is for somebody."""


class Cache(NamedTuple):
    entries: NDArray[np.void]
    slot_entry: NDArray[np.int32]
    slot_ns: NDArray[np.int64]
    """When the slot joined the queue."""
    low: NDArray[np.int32]
    """By ledger: nothing below is cached."""
    s: NDArray[np.int64]
    """Everything else, by the names of `counters`."""

    def with_room(self, slots: int) -> Cache:
        """The same with at least so many slots; twice as many as long as these are too few."""
        old = len(self.slot_entry)
        new = old
        while new < slots:
            new *= 2
        used = np.arange(self.s[c.HEAD], self.s[c.TAIL])
        slot_entry, slot_ns = np.empty(new, np.int32), np.empty(new, np.int64)
        slot_entry[used & (new - 1)] = self.slot_entry[used & (old - 1)]
        slot_ns[used & (new - 1)] = self.slot_ns[used & (old - 1)]
        return self._replace(slot_entry=slot_entry, slot_ns=slot_ns)
