"""The replayed cache as arrays for the machine code: 16 bytes per entry, a ring as the removal queue, counters."""

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
"""An entry: slot in the ring, bytes, expected reads, number of requeues, flags."""
CACHED, ACCESSED, PENDING = 1, 2, 4
"""Flags of an entry. PENDING: this replay requested it from storage, so a recorded arrival counts for it."""


class CacheArrays(NamedTuple):
    """All state of a replayed cache."""

    entries: NDArray[np.void]
    """By dense number, as ENTRY."""
    slot_entry: NDArray[np.int32]
    """By slot of the removal queue, the entry that was put there."""
    slot_ns: NDArray[np.int64]
    """By slot, when the entry was put there."""
    low: NDArray[np.int32]
    """By ledger, a number below which no entry is cached. Invalidations begin there."""
    s: NDArray[np.int64]
    """Counters, state of passes and settings, at the places named in `counters`."""

    def with_slots(self, slots: int) -> CacheArrays:
        """Returns the cache with at least so many slots, by doubling them."""
        old = len(self.slot_entry)
        new = old
        while new < slots:
            new *= 2
        # Head and tail count on for ever, and a slot's place is its number modulo the length, so each used slot
        # moves to its new place.
        used = np.arange(self.s[c.HEAD], self.s[c.TAIL])
        slot_entry, slot_ns = np.empty(new, np.int32), np.empty(new, np.int64)
        slot_entry[used & (new - 1)] = self.slot_entry[used & (old - 1)]
        slot_ns[used & (new - 1)] = self.slot_ns[used & (old - 1)]
        return self._replace(slot_entry=slot_entry, slot_ns=slot_ns)
