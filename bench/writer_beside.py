"""How much slower are a writer's synced adds while cold readers read from the same bookie?

The part "adds" of `bench.bookie_reads`. Law: writer and readers share one bookie and its loop, as in a broker's process;
the readers request without a pause. The kinds take turns (A B C A B C), so that other load of the machine falls on all of
them, and each number is the median of the rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from bench.cold_readers import MASTER_KEY, Readers, demand_bytes, entries_loaded, entry_of, open_cold
from bench.disk import fdatasync_us
from bookie_stub.base.record import frame
from bookie_stub.compose.bookie import Bookie
from bookie_stub.disk.read_cache import POLICIES

READERS = 16
"""Cold readers beside the writer."""
BATCH = 1000
"""Readahead in entries."""
SHARE = 0.5
"""Size of the read cache by the demand of the readers."""
ADDS_PER_S = 500
LEDGER = 1 << 20
"""Id of the writer's ledger; the readers do not read it."""


class AddTimes(NamedTuple):
    """Latencies of synced adds, and the readers' speed meanwhile."""

    p50_ms: float
    """Median from due to answered."""
    p99_ms: float
    highest_ms: float
    sync_p50_ms: float
    """Median of the journal's fdatasync alone."""
    read_per_s: float
    """Entries served to the readers meanwhile."""
    disk_reads_per_entry: float
    """Entries read from the logs per entry served to the readers."""


async def measure_adds(directory: Path, entries: int, seconds: float, rounds: int) -> dict[str, AddTimes]:
    """Returns the times by the load beside the adds; the disk's own synced write, without a bookie, is one of them."""
    found: dict[str, list[AddTimes]] = {}
    for number in range(rounds):
        found.setdefault("no bookie: the disk's fdatasync", []).append(_disk_times(seconds))
        for policy in (None, *POLICIES):
            name = "no reader" if policy is None else f"{READERS} cold readers, {policy}"
            found.setdefault(name, []).append(await _add_times(directory, entries, policy, seconds))
        for name, each in found.items():
            print(f"adds, round {number + 1}, beside {name}: {each[-1]}", flush=True)
    return {
        name: AddTimes(*(statistics.median(values) for values in zip(*each, strict=True)))
        for name, each in found.items()
    }


def _disk_times(seconds: float) -> AddTimes:
    durations = [each / 1e6 for each in fdatasync_us(int(seconds * ADDS_PER_S), ADDS_PER_S)]
    return _times(durations, durations[len(durations) // 2] * 1e3, 0, 0)


async def _add_times(directory: Path, entries: int, policy: str | None, seconds: float) -> AddTimes:
    """Measures beside readers under `policy`, or without readers (None). Half of the readers' demand fits into the cache."""
    cache_bytes = int(SHARE * demand_bytes(READERS, BATCH))
    bookie = open_cold(directory, policy or "ring", BATCH, cache_bytes)
    bookie.delete_ledger(LEDGER)
    try:
        crowd = Readers(bookie, READERS, entries, 1, seed=2)
        readers = asyncio.ensure_future(crowd.run_for(seconds)) if policy else None
        durations = await _add_evenly(bookie, seconds)
        if readers is not None:
            await readers
        (sync_ms,) = bookie.stats.journals[0].syncs.ok.quantiles((0.5,))
        served = crowd.served
        return _times(durations, sync_ms, served / seconds, entries_loaded(bookie) / max(served, 1))
    finally:
        bookie.close()


def _times(
    durations_s: list[float], sync_ms: float, read_per_s: float, disk_reads_per_entry: float
) -> AddTimes:
    ordered = sorted(durations_s)
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return AddTimes(middle * 1e3, late * 1e3, ordered[-1] * 1e3, sync_ms, read_per_s, disk_reads_per_entry)


async def _add_evenly(bookie: Bookie, seconds: float) -> list[float]:
    """Returns durations from the moment when an add is due to its answer, so that a late start counts too."""
    durations: list[float] = []
    count = int(seconds * ADDS_PER_S)
    began = time.perf_counter()

    def add(entry_id: int) -> None:
        due = began + entry_id / ADDS_PER_S
        record = frame(entry_of(LEDGER, entry_id))
        bookie.add(
            LEDGER,
            entry_id,
            record,
            MASTER_KEY,
            False,
            lambda rc, _: durations.append(time.perf_counter() - due),
        )

    for entry_id in range(count):
        await asyncio.sleep(began + entry_id / ADDS_PER_S - time.perf_counter())
        add(entry_id)
    async with asyncio.timeout(30):
        while len(durations) < count:  # noqa: ASYNC110 - the answers come through the loop
            await asyncio.sleep(0.001)
    return durations
