"""What no setting can beat, and what policies from elsewhere would have made of the same reads: by simulators over the
bare requests. An append puts an entry in, without being a read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from broker.recorder.record_reader import RunOfBroker
from pipeline.replays.accesses import APPEND, ASK, CAME_TO_NOTHING, FORCED, READ, Accesses, runs_expanded
from pipeline.replays.making import accesses_of
from pipeline.replays.sampling import sampled
from pipeline.simulators.replay import replay
from pipeline.simulators.trace import Trace, trace_of

BASELINE: Final = ("FIFO", "LRU", "Sieve", "S3FIFO", "ARC", "WTinyLFU", "Belady")
SAMPLED_BASELINE: Final = tuple(policy for policy in BASELINE if policy not in ("Sieve", "WTinyLFU"))
"""The others do with a small cache what they do not with a large one (docs/simulators.md)."""


class Requests(NamedTuple):
    trace: Trace
    reads: int
    appends: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Which requests are no reads."""


def requests_of(accesses: Accesses) -> Requests:
    """Appends and reads in their order, each entry with its size."""
    rows = accesses.rows
    came = (rows.op == ASK) & ((rows.detail & ~FORCED) != CAME_TO_NOTHING)
    wanted = (rows.op == APPEND) | (rows.op == READ) | came
    chosen = rows.take(wanted)
    row, ids = runs_expanded(chosen.first, chosen.entries)
    appends = chosen.op[row] == APPEND
    trace = trace_of(ids.astype(np.uint64), np.maximum(accesses.sizes[ids], 1))
    return Requests(trace, int(np.count_nonzero(~appends)), appends)


def baseline_of(task: tuple[RunOfBroker, int, float, Sequence[str]]) -> list[tuple[str, int, int]]:
    """(policy, reads that hit, reads) of a run with a cache of so many bytes, on a share of the entries."""
    run, size_bytes, rate, policies = task
    accesses = accesses_of(run)
    accesses = sampled(accesses, rate) if rate < accesses.rate else accesses
    requests = requests_of(accesses)
    if not requests.reads:
        return [(policy, 0, 0) for policy in policies]
    capacity = max(round(size_bytes * accesses.bytes_rate), 1)
    found = []
    for policy in policies:
        try:
            hits = replay(policy, requests.trace, capacity).hits
        except ValueError:  # Too small a capacity for it.
            continue
        found.append((policy, int(np.count_nonzero(hits & ~requests.appends)), requests.reads))
    return found
