"""Cold readers in front of a bookie's read cache: real entry logs, no page cache, one measured cell at a time.

The measuring part of `bench.bookie_reads` and `writer_beside.py`. Law: every reader has ledgers of its own and reads them
forwards, and the next reader is drawn by lot, so that nothing but the cache decides which entries are read twice. Bytes
read from a log are dropped from the page cache at once, so that a second read goes to the disk again.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, frame
from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import for_directory
from bookie_stub.disk.read_cache import POLICIES, ReadCache, aligned

LEDGERS = 64
PAYLOAD_BYTES = 1024
ENTRY_BYTES = 36 + PAYLOAD_BYTES
MASTER_KEY = b"k" * 20
WARM_BATCHES = 1.5
"""Read by each reader before counting begins: half a batch off, because all load at about the same time."""
COUNTED_BATCHES = 2
STOPPED_ABOVE = 10.0
"""Disk reads per entry of a cell that is ended when its time is over; the others are measured to their end."""
_PAGE_BYTES = 4096
_ADDS_AT_ONCE = 500


class Cell(NamedTuple):
    """The costs of a number of readers under one policy; `share` is the cache's size by their demand."""

    policy: str
    """Of the read cache."""
    batch: int
    """Readahead in entries."""
    readers: int
    share: float
    served: int
    """Entries served while counting."""
    disk_reads_per_entry: float
    """Entries read from the logs by entries served."""
    device_bytes_per_byte: float
    """Bytes that the device delivered by bytes served; 0 where the file system has no device."""
    entries_per_s: float
    """Entries served per second."""


class UncachedFileSystem(FileSystem):
    """A file system whose reads always go to the device."""

    def open_to_read(self, path: Path) -> int:
        """Opens a file and drops it from the page cache."""
        descriptor = super().open_to_read(path)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead but the bookie's own
        return descriptor

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Reads and drops the pages that were read."""
        data = super().read(descriptor, size, offset)
        # Only whole pages are dropped.
        start = offset // _PAGE_BYTES * _PAGE_BYTES
        end = -(-(offset + size) // _PAGE_BYTES) * _PAGE_BYTES
        os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
        return data


def demand_bytes(readers: int, batch: int) -> int:
    """Returns the bytes of all loads that so many readers use at the same time."""
    return readers * (batch + 1) * aligned(ENTRY_BYTES)


async def write_ledgers(directory: Path, entries: int) -> None:
    """LEDGERS ledgers of so many entries, flushed in one go, so that each lies in one piece."""
    # Twice the bytes, so that no checkpoint begins before the end: then one flush writes each ledger in one piece.
    size = 2 * LEDGERS * entries * (ENTRY_BYTES + 300)
    settings = for_directory(
        directory, write_cache_bytes=2 * size, journal_sync_data=False, journal_backups=0
    )
    bookie = Bookie.open(settings, asyncio.get_running_loop().call_soon_threadsafe)
    try:
        for ledger in range(LEDGERS):
            for first in range(0, entries, _ADDS_AT_ONCE):
                await add_all(bookie, ledger, range(first, min(first + _ADDS_AT_ONCE, entries)))
    finally:
        bookie.close()


async def add_all(bookie: Bookie, ledger: int, entries: range) -> None:
    """Adds entries and waits until all are stored."""
    answered = asyncio.get_running_loop().create_future()
    left = len(entries)

    def done(rc: int, _entry_id: int) -> None:
        nonlocal left
        left -= 1
        if rc and not answered.done():
            answered.set_exception(RuntimeError(f"add of ledger {ledger} was answered with {rc}"))
        elif not left and not answered.done():
            answered.set_result(None)

    for entry_id in entries:
        bookie.add(ledger, entry_id, frame(entry_of(ledger, entry_id)), MASTER_KEY, False, done)
    await answered


def entry_of(ledger: int, entry_id: int) -> bytes:
    """Returns an entry as a bookie stores it."""
    head = KEY.pack(ledger, entry_id) + KEY.pack(entry_id - 1, (entry_id + 1) * PAYLOAD_BYTES)
    return (head + b"crc." + b"%d " % entry_id).ljust(ENTRY_BYTES, b"x")


class Readers:
    """Readers that take turns with one read in flight; the one drawn reads `turn` entries in a row."""

    def __init__(self, bookie: Bookie, count: int, entries: int, turn: int, seed: int) -> None:
        self._bookie = bookie
        self._count = count
        self._entries = entries
        self._turn = turn
        self._rng = random.Random(seed)
        self._places = [0] * count
        self._current = 0
        self._left = 0
        self._began = 0, 0
        self._ends_at = 0.0
        self._served_max = 0
        self._finished: asyncio.Future[None] | None = None
        self.served = 0

    async def run(self, reads: int, seconds: float) -> None:
        """Reads until `reads` entries are served, or ends readers that thrash after `seconds`."""
        self._began = self.served, entries_loaded(self._bookie)
        self._served_max = self.served + reads
        self._ends_at = time.perf_counter() + seconds
        self._finished = asyncio.get_running_loop().create_future()
        self._next()
        await self._finished

    async def run_for(self, seconds: float) -> None:
        """Reads for so many seconds."""
        asyncio.get_running_loop().call_later(seconds, self._stop)
        await self.run(1 << 60, seconds=float("inf"))

    def _stop(self) -> None:
        self._served_max = self.served

    def _thrashes(self) -> bool:
        served, loaded = self._began
        return entries_loaded(self._bookie) - loaded > STOPPED_ABOVE * (self.served - served)

    def _next(self) -> None:
        if not self._left:
            self._current = self._rng.randrange(self._count)
            self._left = self._turn
        self._left -= 1
        # A reader at the end of its ledger continues with the next one that no other reader has.
        own = (LEDGERS - self._current - 1) // self._count + 1
        number, entry_id = divmod(self._places[self._current], self._entries)
        ledger = self._current + number % own * self._count
        self._places[self._current] += 1
        self._bookie.read(ledger, entry_id, self._answered)

    def _answered(self, rc: int, entry: bytes) -> None:
        assert self._finished is not None
        if rc or len(entry) != ENTRY_BYTES:
            self._finished.set_exception(RuntimeError(f"a read was answered with {rc}, {len(entry)} bytes"))
            return
        self.served += 1
        # Only readers that thrash end by time; the others are quick enough to read all that they should.
        late = time.perf_counter() >= self._ends_at
        if self.served >= self._served_max or (late and self._thrashes()):
            self._finished.set_result(None)
        else:
            self._next()


async def measure(
    directory: Path,
    entries: int,
    policy: str,
    batch: int,
    readers: int,
    cache_bytes: int,
    *,
    turn: int = 1,
    seconds: float = 2.5,
) -> Cell:
    """`entries`: of each ledger. `seconds` bounds warming up and counting together."""
    bookie = open_cold(directory, policy, batch, cache_bytes)
    try:
        crowd = Readers(bookie, readers, entries, turn, seed=1)
        await crowd.run(int(WARM_BATCHES * readers * (batch + 1)), seconds / 2)
        stats = bookie.stats
        # Noted after the warm-up: the first loads of all readers would count as misses under every policy.
        loaded, served, device = entries_loaded(bookie), crowd.served, device_bytes()
        began = time.perf_counter()
        await crowd.run(COUNTED_BATCHES * readers * (batch + 1), seconds / 2)
        elapsed = time.perf_counter() - began
        served = crowd.served - served
        assert stats.read_requests.failed.count == 0
        return Cell(
            policy,
            batch,
            readers,
            cache_bytes / demand_bytes(readers, batch),
            served,
            (entries_loaded(bookie) - loaded) / served,
            (device_bytes() - device) / (served * ENTRY_BYTES),
            served / elapsed,
        )
    finally:
        bookie.close()


def open_cold(directory: Path, policy: str, batch: int, cache_bytes: int) -> Bookie:
    """Opens a bookie with the given read cache on files outside the page cache."""
    settings = for_directory(
        directory, read_cache_policy=policy, readahead_entries=batch, read_cache_bytes=cache_bytes
    )
    post = asyncio.get_running_loop().call_soon_threadsafe
    return Bookie.open(settings, post, file_system=UncachedFileSystem())


def entries_loaded(bookie: Bookie) -> int:
    """Returns the entries read from the logs since the start."""
    ahead = bookie.stats.readahead_entries
    return int(ahead.sum) + ahead.count


def device_bytes() -> int:
    """Returns the bytes that this process has fetched from block devices."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    return 0


def simulate(policy: str, batch: int, readers: int, share: float, turn: int) -> float:
    """Returns disk reads per entry by the cache's rule alone, without bookie and disk, with the same lots."""
    cache: ReadCache = POLICIES[policy](int(share * demand_bytes(readers, batch)))
    rng = random.Random(1)
    entry = bytes(ENTRY_BYTES)
    places = [0] * readers
    warm = int(WARM_BATCHES * readers * (batch + 1))
    loaded = before = served = 0
    while served < warm + 4 * readers * (batch + 1):
        reader = rng.randrange(readers)
        for place in range(places[reader], places[reader] + turn):
            if cache.get(reader, place) is None:
                cache.put(reader, range(place, place + batch + 1), [entry] * (batch + 1), 1)
                loaded += batch + 1
            served += 1
            if served == warm:
                before = loaded
        places[reader] += turn
    return (loaded - before) / (served - warm)
