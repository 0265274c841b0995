"""SpatialSample: a share of all entries, chosen by their place alone (SHARDS, Waldspurger et al., FAST 2015).

An entry is in the sample with everything that ever happens to it, or not at all. A log is read in order, so the sample is
systematic: every n-th block of neighbours, n being a power of two, from a start that a hash of the ledger and the stretch
decides. Any part of a log then has its share of the sample up to one block, where a hash of each entry would give a small
cache a third too many or too few by chance; and a run costs one hash, however long it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

BLOCK_BITS: Final = 2
"""Binary logarithm of the entries of a block."""
BLOCK_ENTRIES: Final = 1 << BLOCK_BITS
"""Neighbouring entries that are in the sample together."""
FOLDS: Final = 16
"""Parts of the sample, for the standard error."""
HALVINGS_MAX: Final = 20
"""A sample of less than a millionth says nothing."""
_STRETCH_BITS: Final = HALVINGS_MAX
"""Binary logarithm of the blocks between two hashes; a reader whose steps fit the sample meets another start there."""
_MASK: Final = 0xFFFFFFFF
_LEDGER: Final = 0x9E3779B1
_BLOCK: Final = 0x85EBCA77
_MIX: Final = 0xC2B2AE3D


def hash_of(ledger_id: int, number: int) -> int:
    """Returns 32 bits that neighbouring ledgers and numbers share no pattern in."""
    mixed = (ledger_id * _LEDGER ^ number * _BLOCK) & _MASK
    mixed = (mixed ^ mixed >> 15) * _MIX & _MASK
    return mixed ^ mixed >> 13


class SpatialSample:
    """One block in 1, 2, 4, 8 …"""

    def __init__(self, rate: float) -> None:
        """`rate` is the share of the entries, above 0; the next lower power of two is taken."""
        self.halvings = 0
        """How often the sample was halved from all entries."""
        self._mask = 0
        # The stretch of the last run and its start: runs of one log follow each other.
        self._stretch = (-1, -1)
        self._start = 0
        while self.rate > rate and self.halvings < HALVINGS_MAX:
            self.halve()

    @property
    def rate(self) -> float:
        """The share of the entries in the sample."""
        return 1 / (1 << self.halvings)

    def halve(self) -> None:
        """Takes every second block out of the sample."""
        self.halvings += 1
        self._mask = (1 << self.halvings) - 1

    def next_block(self, ledger_id: int, first: int) -> int:
        """Returns the first block of the sample that ends after the entry `first`."""
        block = first >> BLOCK_BITS
        stretch = ledger_id, block >> _STRETCH_BITS
        if stretch != self._stretch:
            # The low bits of the start serve smaller masks too, so a smaller sample is a part of a larger one.
            self._stretch, self._start = stretch, hash_of(*stretch)
        return block + (self._start - block & self._mask)

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Returns True for an entry of the sample."""
        return any(self.parts(ledger_id, entry_id, 1))

    def parts(self, ledger_id: int, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Yields (first id, end id, fold) of each part of a run that is in the sample."""
        block, end = self.next_block(ledger_id, first), first + count
        while (begin := block << BLOCK_BITS) < end:
            yield max(first, begin), min(end, begin + BLOCK_ENTRIES), hash_of(ledger_id, block) % FOLDS
            block += self._mask + 1
