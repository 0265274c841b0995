"""The price of a stored acknowledgement: the embedded store, and ZooKeeper with cursor ledgers.

`MAGNETAR_PULSAR_HOME=... python -m bench.cursor_positions [--cursors 10000] [--rounds 10] [--only embedded ledgers]`

Each kind is a process of its own with the cursors on a hundred logs. In each round every cursor acknowledges one entry, and
the round ends when all positions are stored. The first round, which begins the cursor ledgers, is not counted. Prints

- the CPU of the process for each acknowledgement, of all its threads, and
- the writes that ZooKeeper logged in a round, by its transaction ids: those of a second, where a broker stores each
  position once a second.

The home of an Apache Pulsar distribution has the ZooKeeper, which needs Java. The bookie is a process of its own beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bookie_stub.compose.bookie import Bookie
from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.client.embedded import EmbeddedLedgerClient
from bookkeeper.ensembles.bookies import BookieSet
from bookkeeper.ensembles.ledger_handle import Added
from bookkeeper.ensembles.ledger_ids import LedgerIds
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.ensembles.zookeeper_ledger_ids import ZookeeperLedgerIds
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.compose.cache_settings import EntryCacheSettings
from broker.compose.ledger_settings import LedgerSettings, QuarantineSettings
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.settings import ManagedLedgerSettings
from entry_cache.compose import ComposedCache
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import EARLIEST
from foundation.zookeeper.url import parse_store_url
from magnetar.process.standalone import GC_YOUNG_OBJECTS
from tests.bookie_stub.bookie_process import Process
from tests.fakes.ledgers import on_one_bookie
from tests.support.bookie_settings import for_directory
from tests.support.java import ZooKeeper

LOGS: Final = 100
KINDS: Final = ("embedded", "ledgers")


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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[ManagedLedgerEnvironment]:
    """The store in a file, and the bookie in the process."""
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, time.monotonic_ns)
    store = SqliteMetadataStore(folder / "metadata.db")
    bookie = Bookie.open(for_directory(folder), loop.call_soon_threadsafe, at_end_of_turn=turn.commit)
    ledgers = on_one_bookie(store, EmbeddedLedgerClient(bookie))
    cache = ComposedCache(EntryCacheSettings()).manager
    yield ManagedLedgerEnvironment(store, ledgers, LedgerIds(store), cache, turn, time.monotonic_ns, _now_ms)
    await ledgers.close()
    await store.close()


@asynccontextmanager
async def shared(zookeeper: str, bookie: str) -> AsyncIterator[ManagedLedgerEnvironment]:
    """The store in ZooKeeper, and a bookie over TCP."""
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, time.monotonic_ns)
    url = parse_store_url(f"zk:{zookeeper}/ledgers")
    assert url is not None
    store = await ZookeeperMetadataStore.open(url, session_timeout_s=30, timeout_s=30)
    bookies = BookieSet(
        (bookie,),
        lambda address: BookKeeperLedgerClient(address, turn=turn, frame_bytes_max=5 << 20),
        now_ns=time.monotonic_ns,
        quarantine=QuarantineSettings(),
    )
    one = LedgerSettings(ensemble_size=1, write_quorum=1, ack_quorum=1)
    ledgers = Ledgers(store, bookies, one, call_soon=loop.call_soon, call_later=loop.call_later)
    cache = ComposedCache(EntryCacheSettings()).manager
    ids = ZookeeperLedgerIds(store.requests)
    yield ManagedLedgerEnvironment(store, ledgers, ids, cache, turn, time.monotonic_ns, _now_ms)
    await ledgers.close()
    await store.close()


async def open_cursors(
    environment: ManagedLedgerEnvironment, cursors: int, entries: int
) -> list[ManagedCursor]:
    """Opens the logs with their entries and their cursors."""
    settings = ManagedLedgerSettings(mark_delete_rate=0.0)
    opened: list[ManagedCursor] = []
    for number in range(LOGS):
        name = f"t/n/persistent/log-{number}"
        stamp = environment.stamp(name, timestamp=True, index=True)
        ledger = await ManagedLedger.open(name, environment, settings, stamp=stamp)
        names = [f"cursor-{one}" for one in range(cursors // LOGS)]
        opened += await asyncio.gather(*[ledger.cursors.open(one, EARLIEST) for one in names])
        ledger.writer.listener = confirmed = Confirmed()
        ledger.writer.add([b"x"] * entries, 1, None)
        while confirmed.entries < entries:
            confirmed.more.clear()
            await confirmed.more.wait()
    return opened


async def acknowledge_all(cursors: list[ManagedCursor]) -> None:
    """Acknowledges one entry with each cursor and waits until all positions are stored."""
    stored = asyncio.Event()
    left = len(cursors)

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            stored.set()

    for start in range(0, len(cursors), 500):
        for cursor in cursors[start : start + 500]:
            cursor.acknowledge([cursor.context.ledgers.next_valid(cursor.mark_delete_position)])
            cursor.store.on_durable(one)
        await asyncio.sleep(0)
    await stored.wait()


async def measure(
    environment: ManagedLedgerEnvironment, cursors: int, rounds: int, writes: Callable[[], int]
) -> str:
    """Returns the line of one kind."""
    opened = await open_cursors(environment, cursors, rounds + 1)
    await acknowledge_all(opened)
    for cursor in opened:
        await cursor.store.settle()
    # As a broker's start does. With Python's own thresholds passes over all cursors take half of the CPU.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, 50, 1000)
    before, began, wall = writes(), time.process_time(), time.monotonic()
    for _ in range(rounds):
        await acknowledge_all(opened)
    cpu, took, written = time.process_time() - began, time.monotonic() - wall, writes() - before
    per_ack = cpu / rounds / cursors * 1e6
    return f"{per_ack:.1f} us of CPU an acknowledgement, {written / rounds:.0f} writes of ZooKeeper a round, {took:.1f} s"


def transactions(address: str) -> int:
    """Returns the number of the last write of a ZooKeeper."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"srvr")
        text = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    (line,) = (one for one in text.splitlines() if one.startswith("Zxid"))
    return int(line.split()[1], 16)


async def run_kind(kind: str, cursors: int, rounds: int, zookeeper: str, bookie: str) -> None:
    """Measures one kind in this process."""
    if kind == "embedded":
        with tempfile.TemporaryDirectory() as folder:
            async with embedded(Path(folder)) as environment:
                print(f"{kind}: {await measure(environment, cursors, rounds, lambda: 0)}", flush=True)
    else:
        async with shared(zookeeper, bookie) as environment:
            line = await measure(environment, cursors, rounds, lambda: transactions(zookeeper))
            print(f"{kind}: {line}", flush=True)


def main() -> None:
    """Starts ZooKeeper and the bookie, and a process for each kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cursors", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        kind, zookeeper, bookie = arguments.child
        asyncio.run(run_kind(kind, arguments.cursors, arguments.rounds, zookeeper, bookie))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        zookeeper = ZooKeeper(f"{os.environ['MAGNETAR_PULSAR_HOME']}/lib/*", folder)
        zookeeper.start()
        bookie = Process(folder / "bookie")
        bookie.start()
        sizes = ["--cursors", str(arguments.cursors), "--rounds", str(arguments.rounds)]
        try:
            for kind in arguments.only:
                child = ["--child", kind, zookeeper.address, bookie.addresses["bookie"]]
                subprocess.run([sys.executable, "-m", "bench.cursor_positions", *sizes, *child], check=True)
        finally:
            bookie.end(signal.SIGTERM)
            zookeeper.stop()


if __name__ == "__main__":
    main()
