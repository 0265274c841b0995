"""W-TinyLFU over dense ids: the two segments of main are queues 1 and 2, the window is the third.

The cells of the sketch are worked out per object before the replay, 40 bytes for each object of the trace.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from pipeline.simulators.frequency_sketch import HASHES, SEEDS, counters_for
from pipeline.simulators.hashing import xxh64
from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, compiled, kernel
from pipeline.simulators.kernels.queues import NOWHERE, Queues, enter, leave, new_queues, oldest, renew
from pipeline.simulators.kernels.slru import evict, insert, lift, lowest
from pipeline.simulators.w_tiny_lfu import MAIN_SHARES, SAMPLE, WINDOW_RATIO

CELLS = types.Array(types.int32, 2, "C", readonly=True)
COUNTERS_PER_CELL_MAX = 4
WINDOW = 3
NEW_SHARE, PROVEN_SHARE = MAIN_SHARES


def sketch_cells(keys: NDArray[np.uint64], capacity: int) -> NDArray[np.int32]:
    """A row of `HASHES` numbers of counters for each key; without gaps if there are more counters than it is worth."""
    counters = counters_for(capacity - int(capacity * WINDOW_RATIO))
    start, step = (xxh64(keys, seed).astype(np.uint32)[:, None] for seed in SEEDS)
    hashes = np.add(start, step * np.arange(HASHES, dtype=np.uint32), dtype=np.uint32)
    cells = (hashes % np.uint32(counters)).astype(np.int32)
    if counters > COUNTERS_PER_CELL_MAX * cells.size:
        cells = np.unique(cells, return_inverse=True)[1].reshape(hashes.shape).astype(np.int32)
    return cells


class _State(NamedTuple):
    queues: Queues
    main_capacity: int
    capacities: NDArray[np.int64]
    """Of main's segments, by queue number."""
    counts: NDArray[np.uint32]
    cells: NDArray[np.int32]
    """A row of `HASHES` places in `counts` for each object."""


@kernel(IDS, SIZES, CAPACITY, CELLS)
def w_tiny_lfu(
    ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int, cells: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """`cells` as `sketch_cells` gives them."""
    hits = np.empty(len(ids), np.bool_)
    window_capacity = int(capacity * WINDOW_RATIO)
    main_capacity = capacity - window_capacity
    capacities = np.array([0, int(NEW_SHARE * main_capacity), int(PROVEN_SHARE * main_capacity)])
    queues = new_queues(sizes, WINDOW)
    state = _State(queues, main_capacity, capacities, np.zeros(cells.max() + 1, np.uint32), cells)
    main_hits = 0
    for i in range(len(ids)):
        x = ids[i]
        place = queues.place[x]
        if place != NOWHERE:
            hits[i] = True
            if place == WINDOW:
                renew(queues, WINDOW, x)
                continue
            lift(queues, capacities, x)
            _count(state, x)
            main_hits += 1
            if main_hits == SAMPLE * main_capacity:
                main_hits = 0
                _halve(state.counts)
            continue
        hits[i] = False
        size = sizes[x]
        if size <= min(window_capacity, capacities[1]):
            while queues.used.sum() + size > capacity:
                _evict(state)
            enter(queues, WINDOW, x)
            _count(state, x)
    return hits


@compiled
def _evict(state: _State) -> None:
    queues = state.queues
    evicted = False
    while not evicted:
        if queues.used[WINDOW] == 0:
            evict(queues)
            return
        x = oldest(queues, WINDOW)
        leave(queues, WINDOW, x)
        if queues.used[1] + queues.used[2] + queues.sizes[x] > state.main_capacity:
            evicted = True
            rival = oldest(queues, lowest(queues))
            if _estimate(state, x) > _estimate(state, rival):
                evict(queues)
                insert(queues, state.capacities, state.main_capacity, x)
        else:
            insert(queues, state.capacities, state.main_capacity, x)
        _count(state, x)


@compiled
def _count(state: _State, x: int) -> None:
    for hash_number in range(HASHES):
        state.counts[state.cells[x, hash_number]] += 1


@compiled
def _halve(counts: NDArray[np.uint32]) -> None:
    for cell in range(len(counts)):
        counts[cell] //= 2


@compiled
def _estimate(state: _State, x: int) -> int:
    smallest: int = state.counts[state.cells[x, 0]]
    for hash_number in range(1, HASHES):
        smallest = min(smallest, state.counts[state.cells[x, hash_number]])
    return smallest
