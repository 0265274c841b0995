"""How long does re-replication take, beside the disk's own copying?

`python -m bench.rereplication [--entries 100000] [--bytes 1024] [--ledgers 10] [--rounds 3] [--rate -1] [--data DIR]`

Three bookies of ours, each a process of its own, on one disk. Ledgers with E = Qw = Qa = 2 are written to the first two, and
closed. The second is killed with SIGKILL. A replication worker in this process copies all entries from the first to the
third over TCP; the metadata is in memory, because ZooKeeper's share is a few requests per ledger. In turn with it, a plain
copy reads the same number of bytes from a file and writes and syncs them to another one on the same disk.

The sum of the copied entries is checked at the end. docs/reference/benchmarks.md has results.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from autorecovery.copying import Copying
from autorecovery.fragments import lost_of
from autorecovery.marks import Marks
from autorecovery.pace import Pace
from autorecovery.settings import AutoRecoverySettings
from autorecovery.stats import WorkerStats
from autorecovery.worker import ReplicationWorker
from broker.ledger_client.bookies import BookieSet
from broker.ledger_client.bookkeeper import BookKeeperLedgerClient
from broker.ledger_client.digest import DEFAULT_DIGEST
from broker.ledger_client.ensemble_writer import EnsembleWriter
from broker.ledger_client.own_ledger import OwnLedger, read_metadata
from broker.ledger_client.settings import QuarantineSettings
from broker.loop import clock
from broker.loop.turn import Turn
from broker.metadata.memory_metadata_store import MemoryMetadataStore
from protocol.ledger_metadata import LedgerMetadata, Segment
from tests.support.bookies import BookieProcesses

TOGETHER = 2000
"""Adds that are out at a time while the ledgers are written."""
CHUNK = 4 << 20


class Took(NamedTuple):
    """Seconds of one re-replication."""

    elapsed_s: float
    worker_cpu_s: float
    source_cpu_s: float
    target_cpu_s: float

    def text(self) -> str:
        return (
            f"{self.elapsed_s:.2f} s; CPU of the worker {self.worker_cpu_s:.2f} s, of the bookie that reads"
            f" {self.source_cpu_s:.2f} s, of the bookie that writes {self.target_cpu_s:.2f} s"
        )


class MemoryLocks:
    """The only worker has every lock."""

    async def take(self, ledger_id: int) -> MemoryLocks:
        return self

    async def is_held(self) -> bool:
        return True

    async def release(self) -> None:
        """Nothing to release."""


def main() -> None:
    arguments = _parser().parse_args()
    plain: list[float] = []
    ours: list[Took] = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory(prefix="rereplication-", dir=arguments.data) as name:
            folder = Path(name)
            plain.append(_plain_copy(folder, arguments.entries * arguments.bytes))
            ours.append(uvloop.run(_rereplicate(folder, arguments)))  # as `magnetar bookie` runs it
            shutil.rmtree(folder / "bookies")
            plain.append(_plain_copy(folder, arguments.entries * arguments.bytes))
        print(
            f"round {number + 1}: disk {plain[-2]:.2f} and {plain[-1]:.2f} s, re-replication {ours[-1].text()}"
        )
    disk_s, worker_s = statistics.median(plain), statistics.median(took.elapsed_s for took in ours)
    mebibytes = arguments.entries * arguments.bytes / (1 << 20)
    print(
        f"{arguments.entries} entries of {arguments.bytes} bytes: re-replication {worker_s:.2f} s"
        f" ({arguments.entries / worker_s:,.0f} entries/s, {mebibytes / worker_s:.0f} MiB/s),"
        f" disk {disk_s:.2f} s ({mebibytes / disk_s:.0f} MiB/s), ratio {worker_s / disk_s:.2f}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.rereplication")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--ledgers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=-1, help="replicationRateByBytes; -1 sets no limit")
    parser.add_argument("--batch", type=int, default=100, help="rereplicationEntryBatchSize")
    parser.add_argument("--data", type=Path, help="folder on the disk to measure (the temporary one)")
    return parser


def _plain_copy(folder: Path, size: int) -> float:
    """Seconds in which the disk copies a file of `size` bytes: read, write, sync."""
    source, target = folder / "source", folder / "target"
    with source.open("wb") as file:
        for _ in range(0, size, CHUNK):
            file.write(os.urandom(CHUNK))
        os.fsync(file.fileno())
    began = time.perf_counter()
    with source.open("rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
        while chunk := reading.read(CHUNK):
            writing.write(chunk)
        os.fdatasync(writing.fileno())
    elapsed = time.perf_counter() - began
    source.unlink()
    target.unlink()
    return elapsed


async def _rereplicate(folder: Path, arguments: argparse.Namespace) -> Took:
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, clock.monotonic_ns)

    def connect(address: str) -> BookKeeperLedgerClient:
        host, _, port = address.rpartition(":")
        return BookKeeperLedgerClient(host, int(port), turn=turn, frame_bytes_max=5 << 20)

    with BookieProcesses(folder / "bookies", 3) as processes:
        names = processes.addresses
        bookies = BookieSet(names, connect, now_ns=clock.monotonic_ns, quarantine=QuarantineSettings())
        while len(bookies.reachable()) < len(names):  # noqa: ASYNC110 - connections are made in the background
            await asyncio.sleep(0.01)
        store = MemoryMetadataStore()
        marks = Marks(store)
        await marks.prepare(0)
        for ledger_id in range(arguments.ledgers):
            await _write(store, bookies, ledger_id, arguments)
            await marks.add(ledger_id, [names[1]], 1)
        processes.bookies[1].kill()
        registered = frozenset({names[0], names[2]})

        async def who() -> frozenset[str]:
            return registered

        stats = WorkerStats()
        worker = ReplicationWorker(
            store,
            bookies,
            marks,
            MemoryLocks(),
            who,
            AutoRecoverySettings(),
            Copying(bookies, Pace(arguments.rate), arguments.batch, clock.monotonic_ns, stats),
            call_soon=loop.call_soon,
            spawn=loop.create_task,
        )
        pids = [processes.bookies[number].pid for number in (0, 2)]
        cpu_s = [time.process_time(), *map(_cpu_s, pids)]
        began = time.perf_counter()
        await worker.work()
        elapsed = time.perf_counter() - began
        used = [
            after - before
            for after, before in zip([time.process_time(), *map(_cpu_s, pids)], cpu_s, strict=True)
        ]
        assert not [each async for each in marks.ledgers()]
        assert stats.entries_written == arguments.entries // arguments.ledgers * arguments.ledgers
        for ledger_id in range(arguments.ledgers):
            found = await read_metadata(store, ledger_id)
            assert found is not None
            assert not lost_of(found[0], registered)
        await bookies.close()
        return Took(elapsed, *used)


def _cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _write(
    store: MemoryMetadataStore, bookies: BookieSet, ledger_id: int, arguments: argparse.Namespace
) -> None:
    loop = asyncio.get_running_loop()
    metadata = LedgerMetadata(
        (Segment(tuple(bookies.names[:2])),), ensemble_size=2, write_quorum=2, ack_quorum=2
    )
    own, _ = await OwnLedger.create(store, ledger_id, metadata, lambda *_: None)
    writer = EnsembleWriter(own, bookies, call_soon=loop.call_soon, spawn=loop.create_task)
    body = os.urandom(arguments.bytes)
    count = arguments.entries // arguments.ledgers
    room = asyncio.Semaphore(TOGETHER)
    for entry_id in range(count):
        await room.acquire()
        writer.add(
            ledger_id,
            entry_id,
            DEFAULT_DIGEST.seal(ledger_id, entry_id, entry_id - 1, (entry_id + 1) * len(body), b"", body),
            master_key=DEFAULT_DIGEST.master_key,
            recovery=False,
            done=partial(_added, room),
        )
    for _ in range(TOGETHER):
        await room.acquire()
    await own.close(count - 1, count * len(body))


def _added(room: asyncio.Semaphore, rc: int, _entry_id: int) -> None:
    assert rc == 0
    room.release()


if __name__ == "__main__":
    main()
