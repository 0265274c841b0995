"""Computes XXH64 of 64-bit keys, for samples that all programs share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PRIMES = tuple(
    map(
        np.uint64,
        (
            0x9E3779B185EBCA87,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
        ),
    )
)


def xxh64(keys: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Returns the hash of each key's eight little-endian bytes, as the published algorithm defines it."""
    # Products and sums of numpy's 64-bit numbers wrap around, as the algorithm asks.
    first, second, third, fourth, fifth = _PRIMES
    value = _rotated(keys * second, 31) * first
    value = value ^ np.uint64((seed + int(fifth) + 8) % 2**64)
    value = _rotated(value, 27) * first + fourth
    value = (value ^ value >> np.uint64(33)) * second
    value = (value ^ value >> np.uint64(29)) * third
    hashes: NDArray[np.uint64] = value ^ value >> np.uint64(32)
    return hashes


def _rotated(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """Rotates each number to the left."""
    return values << np.uint64(bits) | values >> np.uint64(64 - bits)
