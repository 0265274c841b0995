"""What are sticky reads worth with three bookies, and what does the death of a bookie cost then?

`python -m bench.sticky_reads [--quick] [--json FILE]`

Three bookie processes over TCP, every ledger on all three (E = Qw = 3), readers that read ten entries of a ledger at a
time, the next one drawn by lot. Compared are reads in turn (each to the next bookie) and sticky reads.

Columns: a bookie's read cache by the demand of all readers, phase (all alive, after a kill, later), kind of reads, entries
read from the logs per entry served, hit ratio of the read caches, entries served, failed reads. Law: entries served and
read are taken from the bookies' own /metrics; a phase is bounded by its reads; entries are flushed and the bookies
restarted before anything is counted, so that no write cache serves. The entry cache's policy has no part in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from bookie_stub.disk.read_cache import aligned
from broker.ledger_client.bookies import BookieSet
from broker.ledger_client.bookkeeper import BookKeeperLedgerClient
from broker.ledger_client.ledgers import Ledgers
from broker.ledger_client.settings import LedgerSettings, QuarantineSettings
from broker.loop import clock
from broker.loop.turn import Turn
from broker.metadata.memory_metadata_store import MemoryMetadataStore
from broker.model.entry import Entry
from broker.model.errors import BrokerError
from tests.support.bookies import BookieProcesses

BOOKIES = 3
LEDGERS = 30
READAHEAD = 100
TURN = 10
"""Entries that a reader takes in a row."""
PAYLOAD_BYTES = 4096
ENTRY_BYTES = 36 + PAYLOAD_BYTES
FRAME_BYTES = 5 << 20
CACHES_MB = (32, 12, 9, 6, 4)
KILLED_WITH_MB = 12
_ADDS_AT_ONCE = 200


class Counts(NamedTuple):
    """Counters summed over all bookies since their start."""

    served: int
    """Reads answered."""
    from_logs: int
    """Entries read from entry logs, readahead included."""
    misses: int
    """Reads that the read cache could not serve."""


class Row(NamedTuple):
    """One row of the table."""

    cache_mb: int
    """Read cache of one bookie in MiB."""
    share: float
    """One bookie's cache by the demand of all readers."""
    sticky: bool
    """False reads each entry range from the next bookie in turn."""
    phase: str
    served: int
    """Entries served in the phase."""
    reads_per_entry: float
    """Entries read from entry logs by entries served."""
    hit_ratio: float
    """Of the bookies' read caches."""
    failed: int
    """Reads that returned an error to the reader."""


def main(argv: list[str] | None = None) -> int:
    """Prints each row when it is measured, then the whole table."""
    parser = argparse.ArgumentParser(
        "python -m bench.sticky_reads", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="fewer entries and caches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the numbers")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    entries, caches = (303, (32, 9)) if arguments.quick else (808, CACHES_MB)
    with tempfile.TemporaryDirectory(prefix="bench-sticky-") as folder:
        rows = asyncio.run(_run(Path(folder), entries, caches))
    print("\n" + table(rows))
    print(f"\n{time.monotonic() - began:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return 0


async def _run(folder: Path, entries: int, caches: tuple[int, ...]) -> list[Row]:
    print(f"writing {LEDGERS} ledgers of {entries} entries of 4 KiB to {BOOKIES} bookies", flush=True)
    metadata = MemoryMetadataStore()
    bookies = BookieProcesses(folder, BOOKIES, {"dbStorage_writeCacheMaxSizeMb": "512"})
    with bookies:
        ledgers = _ledgers(bookies, metadata, sticky=True)
        await ledgers.ready(BOOKIES)
        for ledger_id in range(LEDGERS):
            await _write(ledgers.ledgers, ledger_id, entries)
        await ledgers.ledgers.close()
        bookies.stop()  # a clean stop flushes
    rows: list[Row] = []
    cells = [(cache_mb, sticky, False) for cache_mb in caches for sticky in (False, True)]
    cells += [(KILLED_WITH_MB, sticky, True) for sticky in (False, True)]
    for cache_mb, sticky, kill in cells:
        for row in await _cell(bookies, metadata, entries, cache_mb, sticky=sticky, kill=kill):
            print(table([row]).splitlines()[-1], flush=True)
            rows.append(row)
    return rows


class _Client(NamedTuple):
    """A broker's ledger client, connected to the bookie processes."""

    ledgers: Ledgers
    bookies: BookieSet

    async def ready(self, count: int) -> None:
        """Waits until so many bookies are reachable."""
        while len(self.bookies.reachable()) < count:  # noqa: ASYNC110 - connections are made in their own time
            await asyncio.sleep(0.01)


def _ledgers(processes: BookieProcesses, metadata: MemoryMetadataStore, *, sticky: bool) -> _Client:
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, clock.monotonic_ns)

    def connect(address: str) -> BookKeeperLedgerClient:
        host, _, port = address.rpartition(":")
        return BookKeeperLedgerClient(host, int(port), turn=turn, frame_bytes_max=FRAME_BYTES)

    bookies = BookieSet(
        processes.addresses, connect, now_ns=clock.monotonic_ns, quarantine=QuarantineSettings()
    )
    settings = LedgerSettings(BOOKIES, BOOKIES, 2, sticky_reads=sticky)
    ledgers = Ledgers(metadata, bookies, settings, call_soon=loop.call_soon, call_later=loop.call_later)
    return _Client(ledgers, bookies)


async def _write(ledgers: Ledgers, ledger_id: int, entries: int) -> None:
    own = await ledgers.create(ledger_id, {})
    adds, digest = ledgers.writer(own), ledgers.digest
    body = bytes(PAYLOAD_BYTES)
    for first in range(0, entries, _ADDS_AT_ONCE):
        written = asyncio.get_running_loop().create_future()
        last = min(first + _ADDS_AT_ONCE, entries) - 1

        def done(rc: int, entry_id: int, last: int = last, written: asyncio.Future[int] = written) -> None:
            if (rc or entry_id == last) and not written.done():
                written.set_result(rc)

        for entry_id in range(first, last + 1):
            parts = digest.seal(ledger_id, entry_id, entry_id - 1, (entry_id + 1) * len(body), b"", body)
            adds.add(ledger_id, entry_id, parts, master_key=digest.master_key, recovery=False, done=done)
        if rc := await written:
            raise RuntimeError(f"an add of ledger {ledger_id} was answered with {rc}")
    await own.close(entries - 1, entries * len(body))


async def _cell(
    bookies: BookieProcesses,
    metadata: MemoryMetadataStore,
    entries: int,
    cache_mb: int,
    *,
    sticky: bool,
    kill: bool,
) -> list[Row]:
    settings = {
        "dbStorage_readAheadCacheMaxSizeMb": str(cache_mb),
        "dbStorage_readAheadCacheBatchSize": str(READAHEAD),
    }
    rows: list[Row] = []
    bookies.start(settings)
    try:
        client = _ledgers(bookies, metadata, sticky=sticky)
        await client.ready(BOOKIES)
        readers = Readers(client.ledgers, entries)
        phase = Phase(bookies, readers, cache_mb, sticky=sticky)
        await readers.run(LEDGERS * int(1.5 * READAHEAD) // TURN)  # all are in the middle of a batch
        turns = LEDGERS * (entries - int(1.5 * READAHEAD)) // TURN
        phase.begin()
        if not kill:
            await readers.run(turns)
            rows.append(phase.end("all alive"))
        else:
            await readers.run(turns // 3)
            rows.append(phase.end("all alive"))
            bookies.bookies[1].kill()
            phase.begin()
            await readers.run(LEDGERS * READAHEAD // TURN)
            rows.append(phase.end("one batch per reader after a kill"))
            phase.begin()
            await readers.run(turns // 3)
            rows.append(phase.end("later"))
        await client.ledgers.close()
    finally:
        bookies.stop()
    return rows


class Readers:
    """One reader per ledger, reading forwards from a position of its own; the next one is drawn by lot."""

    def __init__(self, ledgers: Ledgers, entries: int) -> None:
        self._ledgers = ledgers
        self._entries = entries
        self._rng = random.Random(4)
        self._places = [0] * LEDGERS
        self.failed = 0

    async def run(self, turns: int) -> None:
        """Executes so many turns, or fewer where all ledgers are read."""
        for _ in range(turns):
            left = [number for number, place in enumerate(self._places) if place < self._entries]
            if not left:
                return
            reader = self._rng.choice(left)
            first = self._places[reader]
            self._places[reader] = min(first + TURN, self._entries)
            await self._read(reader, first, self._places[reader] - 1)

    async def _read(self, ledger_id: int, first: int, last: int) -> None:
        while first <= last:
            answer = asyncio.get_running_loop().create_future()

            def done(
                entries: list[Entry],
                error: BrokerError | None,
                answer: asyncio.Future[int] = answer,
            ) -> None:
                answer.set_result(-1 if error else len(entries))

            self._ledgers.read(ledger_id, first, last, FRAME_BYTES, done)
            count = await answer
            if count < 0:
                self.failed += 1
                return
            first += count


class Phase:
    """The difference of the bookies' counters between two moments."""

    def __init__(self, bookies: BookieProcesses, readers: Readers, cache_mb: int, *, sticky: bool) -> None:
        self._bookies = bookies
        self._readers = readers
        self._cache_mb = cache_mb
        self._sticky = sticky
        self._before = Counts(0, 0, 0)
        self._failed = 0

    def begin(self) -> None:
        """Notes the counters."""
        self._before = self._now()
        self._failed = self._readers.failed

    def end(self, name: str) -> Row:
        """Returns the row of the phase."""
        now, before = self._now(), self._before
        served = now.served - before.served
        demand = LEDGERS * (READAHEAD + 1) * aligned(ENTRY_BYTES)
        return Row(
            self._cache_mb,
            (self._cache_mb << 20) / demand,
            self._sticky,
            name,
            served,
            (now.from_logs - before.from_logs) / served,
            1 - (now.misses - before.misses) / served,
            self._readers.failed - self._failed,
        )

    def _now(self) -> Counts:
        # A killed bookie is left out here and in the counts before, since `begin` is called again behind each kill.
        counts = [scrape(bookie.http) for bookie in self._bookies.bookies if bookie.alive]
        return Counts(*(sum(values) for values in zip(*counts, strict=True)))


def scrape(http: str) -> Counts:
    """Returns the counters of one bookie."""
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"{http}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            name, _, value = line.rpartition(" ")
            if not line.startswith("#"):
                bare = name.partition("{")[0]
                found[bare] = found.get(bare, 0.0) + float(value)
    misses = found["bookie_read_cache_misses"]
    hits = found["bookie_read_cache_hits"]
    return Counts(int(hits + misses), int(misses + found["bookie_readahead_batch_count_sum"]), int(misses))


def table(rows: list[Row]) -> str:
    """Returns the rows as Markdown."""
    lines = [
        "| cache of a bookie / whole demand | phase | reads | disk reads per entry | hit ratio | entries | failed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.share:.2f} ({row.cache_mb} MiB) | {row.phase} | {'sticky' if row.sticky else 'in turn'}"
        f" | {row.reads_per_entry:.2f} | {row.hit_ratio:.1%} | {row.served:,} | {row.failed} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
