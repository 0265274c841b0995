"""Simulates general policies on the reads of an access record: FIFO, LRU and newer ones, and Belady's bound.

The policies see a bare trace of requests. An append inserts an entry and is not counted as a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from broker.recorder.record_reader import BrokerLifetime
from pipeline.replays.accesses import (
    APPEND,
    CAME_TO_NOTHING,
    FORCED,
    READ,
    STORAGE_READ,
    Accesses,
    runs_expanded,
)
from pipeline.replays.inputs import InputBatch
from pipeline.replays.making import make_accesses
from pipeline.simulators.simulation import BELADY, POLICIES, simulate
from pipeline.simulators.trace import Trace, trace_of

_W_TINY_LFU: Final = "WTinyLFU"
BASELINE: Final = ("FIFO", "LRU", "Sieve", "S3FIFO", "ARC", _W_TINY_LFU, BELADY)
"""Policies that `recommend` shows beside the broker's own."""
SAMPLED_BASELINE: Final = tuple(policy for policy in BASELINE if policy not in ("Sieve", _W_TINY_LFU))
"""The same for a sample.

Sieve and W-TinyLFU behave otherwise in a small cache than in a large one, so a sample misjudges them
(docs/how-to/simulators.md).
"""
SKETCH_UNITS_MAX: Final = 1 << 22
"""The largest capacity that W-TinyLFU is simulated with. It limits the sketch of W-TinyLFU to 240 MB."""


class RequestStream(NamedTuple):
    """The appends and reads of an access record as a trace."""

    trace: Trace
    """Its sizes are bytes."""
    reads: int
    """The number of requests that are reads."""
    appends: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """For each request, True for an append."""


def requests_of(accesses: Accesses) -> RequestStream:
    """Returns appends and reads in their order, each entry with its size."""
    rows = accesses.rows
    came = (rows.op == STORAGE_READ) & ((rows.detail & ~FORCED) != CAME_TO_NOTHING)
    # A storage read that brought nothing is no request: no cache could have had its entries.
    wanted = (rows.op == APPEND) | (rows.op == READ) | came
    chosen = rows.take(wanted)
    row, ids = runs_expanded(chosen.first, chosen.entries)
    appends = chosen.op[row] == APPEND
    trace = trace_of(ids.astype(np.uint64), np.maximum(accesses.sizes[ids], 1))
    return RequestStream(trace, int(np.count_nonzero(~appends)), appends)


def baseline_of(
    lifetime: BrokerLifetime,
    batches: Sequence[InputBatch],
    rate: float,
    *,
    size_bytes: int,
    policies: Sequence[str],
) -> list[tuple[str, int, int]]:
    """Returns (policy, reads that hit, reads) for the inputs of one broker lifetime, or a sample of them with that rate.

    `size_bytes`: of the whole cache. A policy for which the share's capacity is too small is left out.
    """
    accesses = make_accesses(lifetime, batches, rate)
    requests = requests_of(accesses)
    if not requests.reads:
        return [(policy, 0, 0) for policy in policies]
    capacity = max(round(size_bytes * accesses.bytes_rate), 1)
    found = []
    for policy in policies:
        # Some policies divide the capacity among several queues, so they need a smallest one.
        if capacity < POLICIES[policy]:
            continue
        if policy == _W_TINY_LFU:
            trace, units = in_units(requests.trace, capacity, SKETCH_UNITS_MAX)
        else:
            trace, units = requests.trace, capacity
        hits = simulate(policy, trace, units).hits
        found.append((policy, int(np.count_nonzero(hits & ~requests.appends)), requests.reads))
    return found


def in_units(trace: Trace, capacity: int, units_max: int) -> tuple[Trace, int]:
    """Returns the trace and the capacity in a coarser unit.

    The unit is the smallest with which the capacity is at most `units_max`.

    W-TinyLFU's sketch takes 58 bytes per unit of the capacity, whatever the trace: with a capacity of 1 GiB in
    bytes it would take 8 GB of memory.
    """
    # Rounded up, so that the capacity in units is never above the limit.
    unit = -(-capacity // units_max)
    if unit == 1:
        return trace, capacity
    sizes = np.maximum((trace.sizes + unit // 2) // unit, 1)
    return Trace(trace.ids, trace.keys, sizes), capacity // unit
