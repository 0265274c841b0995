"""XXH64 of 64-bit keys: for one key, or for an array of them at once."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


@overload
def xxh64(keys: int, seed: int) -> int: ...
@overload
def xxh64(keys: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]: ...
def xxh64(keys: Any, seed: int) -> Any:
    """The hash of each key as eight little-endian bytes, as the published algorithm defines it."""
    # One text for Python's integers, which the masks cut to 64 bits, and for numpy's, which wrap by themselves.
    first, second, third, fourth, fifth = _PRIMES
    value = _rotate(keys * second & _MASK, 31) * first & _MASK
    value = value ^ (seed + fifth + 8 & _MASK)
    value = _rotate(value, 27) * first + fourth & _MASK
    value = (value ^ value >> 33) * second & _MASK
    value = (value ^ value >> 29) * third & _MASK
    return value ^ value >> 32


def _rotate(value: Any, bits: int) -> Any:
    return (value << bits | value >> 64 - bits) & _MASK
