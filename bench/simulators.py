"""`python -m bench.simulators [--libcachesim] [--requests N] [--only POLICY ...]`: simulated requests per second.

Each policy's kernel beside its pure-Python object and, on request, libCacheSim's wheel from the package index,
installed into a temporary environment. One trace for all, Zipf's law with exponent 1 over a million objects, and
capacities of 1 % and 10 % of the objects in it. Millions of requests per second of CPU, the best of three runs;
misses are compared as well. Below the table, what stands around a replay.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.simulators.generators import zipf
from pipeline.simulators.policies import POLICIES
from pipeline.simulators.replay import replay_by_kernel, replay_by_object
from pipeline.simulators.shards import estimate_lru, sample
from pipeline.simulators.stack_distances import stack_distances
from pipeline.simulators.trace import Trace, trace_of
from pipeline.simulators.trace_files import oracle_general

RUNS = 3
OBJECTS = 1_000_000
CAPACITY_SHARES = (0.01, 0.1)
REQUESTS_OF_OBJECTS = 300_000
"""Pure Python gets the first part of the trace; its rate hardly depends on the length."""

Measured = dict[tuple[str, int], tuple[float, int]]
"""By policy and capacity: millions of requests per second, and misses."""


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m bench.simulators", description="Simulated requests per second."
    )
    parser.add_argument("--requests", type=int, default=5_000_000, metavar="N")
    parser.add_argument("--only", nargs="+", choices=list(POLICIES), default=list(POLICIES), metavar="POLICY")
    parser.add_argument(
        "--libcachesim", action="store_true", help="install its wheel into a temporary folder"
    )
    options = parser.parse_args()
    trace = zipf(1.0, OBJECTS, options.requests, 42)
    capacities = [int(trace.objects * share) for share in CAPACITY_SHARES]
    print(
        f"{len(trace):,} requests for {trace.objects:,} objects, capacities {capacities}; M requests/s of CPU"
    )
    theirs = measure_libcachesim(trace, options.only, capacities) if options.libcachesim else {}
    head = ("policy", "capacity", "kernel", "object", "ratio", "libcachesim", "ratio")
    print("".join(f"{name:>12}" for name in head))
    different = 0
    for policy in options.only:
        for capacity in capacities:
            different += print_row(policy, capacity, trace, theirs)
    print_around(trace, capacities)
    return 1 if different else 0


def print_row(policy: str, capacity: int, trace: Trace, theirs: Measured) -> bool:
    """True if the misses differ from libCacheSim's."""
    short = Trace(trace.ids[:REQUESTS_OF_OBJECTS], trace.keys, trace.sizes)
    misses = replay_by_kernel(policy, trace, capacity).misses
    kernel = rate(lambda: replay_by_kernel(policy, trace, capacity), len(trace))
    by_object = rate(lambda: replay_by_object(policy, short, capacity), len(short), runs=1)
    line = f"{policy:>12}{capacity:>12,}{kernel:>12.1f}{by_object:>12.2f}{kernel / by_object:>12.0f}"
    their_rate, their_misses = theirs.get((policy, capacity), (0.0, misses))
    if their_rate:
        line += f"{their_rate:>12.1f}{kernel / their_rate:>12.1f}"
    if their_misses != misses:
        line += f"  MISSES DIFFER: {misses} and {their_misses}"
    print(line, flush=True)
    return their_misses != misses


def print_around(trace: Trace, capacities: list[int]) -> None:
    keys = np.ascontiguousarray(trace.keys[trace.ids])
    trace_of(keys), stack_distances(trace)  # compiled now
    print(f"dense ids {rate(lambda: trace_of(keys), len(trace)):.1f}", end=", ")
    print(f"stack distances {rate(lambda: stack_distances(trace), len(trace)):.1f}", end=", ")
    try:
        sampled = rate(lambda: estimate_lru(sample(trace, 0.01), capacities), len(trace))
    except ValueError as too_short:
        print(f"SHARDS left out: {too_short}")
    else:
        print(f"SHARDS 1 % of both capacities with error bars {sampled:.0f}")


def rate(work: Callable[[], object], requests: int, runs: int = RUNS) -> float:
    best = float("inf")
    for _ in range(runs):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return requests / best / 1e6


def measure_libcachesim(trace: Trace, policies: list[str], capacities: list[int]) -> Measured:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print("installing libcachesim into a temporary environment ...", flush=True)
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv/bin/python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "libcachesim==0.3.5"]
        installed = subprocess.run(pip, capture_output=True, text=True)
        if installed.returncode:
            print(f"left out, it could not be installed: {installed.stderr.strip().splitlines()[-1]}")
            return {}
        file = folder / "trace.oracleGeneral.bin"
        file.write_bytes(oracle_general(trace))
        runner = Path(__file__).with_name("simulators_libcachesim.py")
        asked = [",".join(policies), ",".join(map(str, capacities)), str(len(trace)), str(RUNS)]
        command = [python, str(runner), str(file), *asked]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    return {(one["policy"], one["capacity"]): (one["rate"], one["misses"]) for one in answers}


if __name__ == "__main__":
    sys.exit(main())
