"""Searches by broker time over a long log: reads and time of each, with and without the ledgers' closing times.

`python -m bench.time_search [--entries 10000000] [--searches 200]`, some minutes and 220 bytes of disk for each entry

Writes one managed ledger into an embedded bookie, by the broker's own writer, on a clock of its own: RUN entries in each
millisecond. Then it opens everything anew, so that no cache of broker or bookie has an entry, and tells the kernel to drop
the files' pages before each kind of search.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

from bookie_stub.compose.bookie import Bookie
from bookkeeper.client.embedded import EmbeddedLedgerClient
from bookkeeper.ensembles.ledger_handle import Added
from bookkeeper.ensembles.ledger_ids import LedgerIds
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.subscriptions.topic_positions import time_of
from entry_cache.compose import ComposedCache
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from tests.fakes.ledgers import on_one_bookie
from tests.support.bookie_settings import for_directory

BEGAN_MS: Final = 1_700_000_000_000
BODY: Final = bytes(128)
RUN: Final = 100
"""Entries of one add, which have one timestamp."""
PENDING_MAX: Final = 20_000


class Confirmed:
    """The listener of the writer: counts confirmed entries."""

    def __init__(self) -> None:
        self.entries = 0
        self.more = asyncio.Event()

    def entries_added(self, entries: list[Entry], added: list[Added], now_ns: int) -> None:
        """Counts them."""
        self.entries += len(entries)
        self.more.set()

    def add_failed(self, added: list[Added], error: BrokerError) -> None:
        """Ends the program: a log with gaps would be another measurement."""
        raise SystemExit(f"{error}")


class World:
    """Stores, and the clock of the broker."""

    def __init__(self) -> None:
        self.wall_ms = BEGAN_MS

    @asynccontextmanager
    async def ledger(self, folder: Path) -> AsyncIterator[ManagedLedger]:
        """Opens everything, and closes it."""
        loop = asyncio.get_running_loop()
        store = SqliteMetadataStore(folder / "metadata.db")
        turn = Turn(loop.call_soon, time.monotonic_ns)
        bookie = Bookie.open(for_directory(folder), loop.call_soon_threadsafe, at_end_of_turn=turn.commit)
        client = EmbeddedLedgerClient(bookie)
        environment = ManagedLedgerEnvironment(
            store,
            on_one_bookie(store, client),
            LedgerIds(store),
            ComposedCache(EntryCacheSettings()).manager,
            turn,
            time.monotonic_ns,
            lambda: self.wall_ms,
        )
        stamp = environment.stamp("log", timestamp=True, index=True)
        settings = ManagedLedgerSettings(rollover_ns_min=0)
        ledger = await ManagedLedger.open("t/n/persistent/log", environment, settings, stamp=stamp)
        ledger.trimming.keep_ms = ledger.trimming.keep_bytes = -1
        yield ledger
        await ledger.close()
        await client.close()
        await store.close()


async def write(world: World, ledger: ManagedLedger, entries: int) -> None:
    """Adds the entries, as many at a time as the listener keeps up with."""
    confirmed = Confirmed()
    ledger.writer.listener = confirmed
    for number in range(0, entries, RUN):
        ledger.writer.add([BODY] * RUN, 1, None)
        world.wall_ms += 1
        # The first run waits for its ledger, and entries are stamped when they leave for one.
        while number + RUN - confirmed.entries >= (PENDING_MAX if number else 1):
            confirmed.more.clear()
            await confirmed.more.wait()
    while confirmed.entries < entries:
        confirmed.more.clear()
        await confirmed.more.wait()


async def search(
    ledger: ManagedLedger, times_ms: Sequence[int], *, narrowed: bool
) -> list[tuple[int, int, float]]:
    """Returns reads, ledgers read and milliseconds of each search."""
    found: list[tuple[int, int, float]] = []
    for time_ms in times_ms:
        read: list[Entry] = []

        def older(entry: Entry, read: list[Entry] = read, time_ms: int = time_ms) -> bool:
            read.append(entry)
            stored_ms = time_of(entry)
            return stored_ms is not None and stored_ms < time_ms

        began_s = time.perf_counter()
        newest = await ledger.find_newest(older, near_ms=time_ms if narrowed else None)
        took_s = time.perf_counter() - began_s
        assert newest is not None
        following = await ledger.read_entry(ledger.ledgers.next_valid(newest))
        assert not older(following), "a newer entry was to be found"
        read.pop()
        found.append((len(read), len({entry.ledger_id for entry in read}), took_s * 1e3))
    return found


def drop_pages(folder: Path) -> None:
    """Tells the kernel that the files' pages are not needed."""
    for path in folder.rglob("*"):
        if path.is_file():
            number = os.open(path, os.O_RDONLY)
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(number)


async def main(entries: int, searches: int, folder: Path) -> None:
    """Writes, searches and prints."""
    world = World()
    began_s = time.perf_counter()
    async with world.ledger(folder) as ledger:
        await write(world, ledger, entries)
    print(f"{entries} entries written in {time.perf_counter() - began_s:.0f} s")
    ended_ms = BEGAN_MS + entries // RUN
    times_ms = random.Random(7).sample(range(BEGAN_MS + 1, ended_ms), searches)
    for narrowed in (True, False):
        drop_pages(folder)
        async with world.ledger(folder) as ledger:
            found = await search(ledger, times_ms, narrowed=narrowed)
            reads, ledgers, ms = zip(*found, strict=True)
            print(
                f"{'by closing times' if narrowed else 'plain binary search'}, {len(ledger.ledgers)} ledgers: "
                f"reads {min(reads)} to {max(reads)}, median {median(reads)}; "
                f"ledgers read {median(ledgers)} in the median; "
                f"ms: median {median(ms):.2f}, 95 % {sorted(ms)[len(ms) * 95 // 100]:.2f}, worst {max(ms):.1f}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Searches by broker time over a long log.")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--searches", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(given.entries // RUN * RUN, given.searches, Path(name)))
