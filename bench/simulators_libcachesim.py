"""Runs inside the temporary environment of `bench.simulators`: libCacheSim's wheel over an oracleGeneral file.

Arguments: file, policies, capacities, requests, runs. Prints a JSON object for each policy and capacity.
"""

from __future__ import annotations

import json
import sys
import time

import libcachesim

HASH_POWER = 20
"""Its table has 2 ** 20 buckets; with the default of 2 ** 24 it is a third as fast."""


def main() -> None:
    file, policies, capacities, requests, runs = sys.argv[1:]
    for policy in policies.split(","):
        for capacity in map(int, capacities.split(",")):
            best, misses = float("inf"), 0
            for _ in range(int(runs)):
                reader = libcachesim.TraceReader(file, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
                cache = getattr(libcachesim, policy)(capacity, hashpower=HASH_POWER)
                begun = time.process_time()
                miss_ratio, _ = cache.process_trace(reader)
                best = min(best, time.process_time() - begun)
                misses = round(miss_ratio * int(requests))
            rate = int(requests) / best / 1e6
            print(
                json.dumps({"policy": policy, "capacity": capacity, "rate": rate, "misses": misses}),
                flush=True,
            )


if __name__ == "__main__":
    main()
