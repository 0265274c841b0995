"""Sampling by entry (SHARDS): an entry is in the sample or not, with everything that ever happens to it.

Whether it is depends on a hash of its ledger and entry id alone; ledger ids are unique among topics. So a smaller
sample is a part of a larger one, and a cache of a sample's share of the size sees what the whole one would see.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
"""Ids, or any other column of a record."""
Hashes = npt.NDArray[np.uint64]
"""Hashes of entries, and ids as unsigned numbers."""
# The constants of SplitMix64 and two odd ones before it, so that neighbouring ids get hashes far apart.
_ENTRY: Final = np.uint64(0x9E3779B97F4A7C15)
_LEDGER: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_SHIFTS: Final = tuple(np.uint64(shift) for shift in (30, 27, 31))
_Hash = TypeVar("_Hash", np.uint64, Hashes)


def mixed(ledgers: _Hash, entries: _Hash) -> _Hash:
    """Returns the hashes of ids that are unsigned already: arithmetic alone, which machine code shares."""
    found: _Hash = ledgers * _LEDGER + entries * _ENTRY
    found = (found ^ (found >> _SHIFTS[0])) * _MIX_1
    found = (found ^ (found >> _SHIFTS[1])) * _MIX_2
    found ^= found >> _SHIFTS[2]
    return found


def sample_hash(ledgers: Ints, entries: Ints) -> Hashes:
    """Returns a hash of each entry, evenly spread over 64 bits."""
    # The multiplications overflow on purpose: this is arithmetic modulo 2 ** 64.
    with np.errstate(over="ignore"):
        return mixed(ledgers.astype(np.uint64), entries.astype(np.uint64))


def hash_limit(sample: float) -> np.uint64:
    """Returns the number that the hash of each entry of a sample is below; `sample` is above 0 and below 1."""
    return np.uint64(int(sample * 2**64))


def in_sample(ledgers: Ints, entries: Ints, sample: float) -> npt.NDArray[np.bool_]:
    """Returns True for each entry of the sample; its share `sample` is above 0 and below 1."""
    return sample_hash(ledgers, entries) < hash_limit(sample)
