"""What a writer notices of cold readers: the time of synced adds at an even pace, with and without them.

Law of the place: writer and readers share one bookie and its loop, as in a broker's process; the readers ask
without a pause.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

from bench.cold_readers import ENTRY_BYTES, MASTER_KEY, Readers, demand_bytes, entry_of, open_cold
from bookie_stub.bookie import Bookie
from bookie_stub.record import frame

READERS = 16
BATCH = 1000
SHARE = 0.5
ADDS_PER_S = 500
LEDGER = 1 << 20
"""Not one of the readers'."""


class AddTimes(NamedTuple):
    adds: int
    p50_ms: float
    p99_ms: float
    highest_ms: float
    read_per_s: float
    """Entries served to the readers meanwhile."""
    disk_reads_per_entry: float


async def add_times(directory: Path, entries: int, policy: str | None, seconds: float) -> AddTimes:
    """`policy` None: nobody reads. The cache has room for half of what the readers want."""
    cache_bytes = int(SHARE * demand_bytes(READERS, BATCH))
    bookie = open_cold(directory, policy or "ring", BATCH, cache_bytes)
    bookie.delete_ledger(LEDGER)
    try:
        crowd = Readers(bookie, READERS, entries, 1, seed=2)
        readers = asyncio.ensure_future(crowd.run_for(seconds)) if policy else None
        durations = sorted(await _add_evenly(bookie, seconds))
        if readers is not None:
            await readers
        ahead = bookie.stats.readahead_entries
        return AddTimes(
            len(durations),
            durations[len(durations) // 2] * 1e3,
            durations[len(durations) * 99 // 100] * 1e3,
            durations[-1] * 1e3,
            crowd.served / seconds,
            (ahead.sum + ahead.count) / max(crowd.served, 1),
        )
    finally:
        bookie.close()


async def _add_evenly(bookie: Bookie, seconds: float) -> list[float]:
    """From the moment when an add is due to its answer, so that a late start counts too."""
    durations: list[float] = []
    count = int(seconds * ADDS_PER_S)
    began = time.perf_counter()

    def add(entry_id: int) -> None:
        due = began + entry_id / ADDS_PER_S
        record = frame(entry_of(LEDGER, entry_id))
        assert len(record) == ENTRY_BYTES + 4
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
