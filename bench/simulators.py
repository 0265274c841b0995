"""How many requests a second does each simulated policy handle?

`python -m bench.simulators [--requests N] [--only POLICY ...]`

One trace for all policies: Zipf's law with exponent 1 over a million objects, and capacities of 1 % and 10 % of the
objects in it. Columns: policy, capacity in objects, millions of requests per second of CPU (best of three), misses. Below
the table: the speed of numbering objects, of stack distances and of a sample. No broker and no entry cache runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

from pipeline.simulators.generators import zipf
from pipeline.simulators.shards import estimate_lru, sample
from pipeline.simulators.simulation import POLICIES, library_is_installed, simulate
from pipeline.simulators.stack_distances import stack_distances
from pipeline.simulators.trace import Trace, trace_of

REPEATS = 3
OBJECTS = 1_000_000
CAPACITY_SHARES = (0.01, 0.1)


def main() -> int:
    """Return 0, or 1 where libcachesim is not installed."""
    parser = argparse.ArgumentParser(
        "python -m bench.simulators", description="Simulated requests per second."
    )
    parser.add_argument("--requests", type=int, default=5_000_000, metavar="N")
    parser.add_argument("--only", nargs="+", choices=list(POLICIES), default=list(POLICIES), metavar="POLICY")
    options = parser.parse_args()
    if not library_is_installed():
        print("libcachesim is not installed: pip install libcachesim", file=sys.stderr)
        return 1
    trace = zipf(1.0, OBJECTS, options.requests, 42)
    capacities = [int(trace.objects * share) for share in CAPACITY_SHARES]
    print(
        f"{len(trace):,} requests for {trace.objects:,} objects, capacities {capacities}; M requests/s of CPU"
    )
    print("".join(f"{name:>14}" for name in ("policy", "capacity", "M requests/s", "misses")))
    for policy in options.only:
        for capacity in capacities:
            print_row(policy, capacity, trace)
    print_around(trace, capacities)
    return 0


def print_row(policy: str, capacity: int, trace: Trace) -> None:
    """Print the speed and the misses of one policy."""
    misses = simulate(policy, trace, capacity).misses
    speed = rate(lambda: simulate(policy, trace, capacity), len(trace))
    print(f"{policy:>14}{capacity:>14,}{speed:>14.2f}{misses:>14,}", flush=True)


def print_around(trace: Trace, capacities: list[int]) -> None:
    """Print the speed of everything around a simulation."""
    keys = np.ascontiguousarray(trace.keys[trace.ids])
    stack_distances(trace)  # numba compiles here, outside of the measurement.
    print(f"numbering objects {rate(lambda: trace_of(keys), len(trace)):.1f}", end=", ")
    print(f"stack distances {rate(lambda: stack_distances(trace), len(trace)):.1f}", end=", ")
    try:
        sampled = rate(lambda: estimate_lru(sample(trace, 0.01), capacities), len(trace))
    except ValueError as too_short:
        print(f"SHARDS left out: {too_short}")
    else:
        print(f"SHARDS 1 % of both capacities with error bars {sampled:.0f}")


def rate(work: Callable[[], object], requests: int) -> float:
    """Return the best speed of several executions, in millions of requests per second of CPU."""
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return requests / best / 1e6


if __name__ == "__main__":
    sys.exit(main())
