"""Numbers for keys by their first appearance: a hash table with linear probing that doubles when half full."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import compiled, kernel

KEYS = types.Array(types.uint64, 1, "C", readonly=True)
SLOTS_AT_FIRST = 1 << 12
EMPTY = -1
SPREAD = 0x9E3779B97F4A7C15
"""Odd, so that multiplying keeps keys apart and its high bits depend on all of the key's."""


@kernel(KEYS)
def dense_ids(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The number of each key, and the keys by number."""
    ids = np.empty(len(keys), np.int32)
    unique = np.empty(SLOTS_AT_FIRST // 2, np.uint64)
    table = np.full(SLOTS_AT_FIRST, EMPTY, np.int32)
    found = 0
    for i in range(len(keys)):
        key = keys[i]
        slot = _slot_of(key, table, unique)
        if table[slot] == EMPTY:
            if found == len(unique):
                unique = np.concatenate((unique, np.empty_like(unique)))
                table = _table_of(unique[:found], 4 * found)
                slot = _slot_of(key, table, unique)
            unique[found] = key
            table[slot] = found
            found += 1
        ids[i] = table[slot]
    return ids, unique[:found].copy()


@compiled
def _table_of(unique: NDArray[np.uint64], slots: int) -> NDArray[np.int32]:
    table = np.full(slots, EMPTY, np.int32)
    for number in range(len(unique)):
        table[_slot_of(unique[number], table, unique)] = number
    return table


@compiled
def _slot_of(key: int, table: NDArray[np.int32], unique: NDArray[np.uint64]) -> int:
    """Where the key stands, or the empty slot where it belongs."""
    mask = len(table) - 1
    slot = int((key * np.uint64(SPREAD)) >> np.uint64(32)) & mask
    while table[slot] != EMPTY and unique[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot
