"""The time to verify a metadata store: `magnetar metadata verify` of many nodes, in a file and in ZooKeeper.

`MAGNETAR_PULSAR_HOME=... python -m bench.verified_store [--nodes 100000] [--runs 3] [--only file zookeeper]`

Of ten nodes one is the list of a topic with five ledgers, four are cursors, and five the metadata of those ledgers. Prints
the time of each run, and the CPU of the command. The home of an Apache Pulsar distribution has the ZooKeeper, which needs
Java.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import (
    CursorInfo,
    ManagedLedgerInfo,
    cursor_key,
    managed_ledger_key,
)
from broker.managed_ledger.records.pulsar_records import StoredCursor, encode_cursor, encode_ledger_list
from foundation.model.position import Position
from foundation.zookeeper.url import parse_store_url
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState, encode, ledger_key
from tests.support.java import ZooKeeper

LEDGERS: Final = 5
CURSORS: Final = 4
KINDS: Final = ("file", "zookeeper")
TOGETHER: Final = 20
"""Topics whose nodes are written at the same time."""


def nodes_of_topic(number: int) -> Iterator[Put]:
    """Yields the ten nodes of a topic."""
    name = f"public/default/persistent/topic-{number}"
    ids = range(number * LEDGERS, (number + 1) * LEDGERS)
    ledgers = [LedgerInfo(one, 1000, 1_000_000, 1_795_456_834_857) for one in ids]
    yield Put(managed_ledger_key(name), encode_ledger_list(ManagedLedgerInfo(ledgers)), ABSENT)
    for cursor in range(CURSORS):
        stored = StoredCursor(CursorInfo(Position(ids[-1], cursor)))
        yield Put(cursor_key(name, f"s{cursor}"), encode_cursor(stored), ABSENT)
    for one in ids:
        metadata = LedgerMetadata(
            (LedgerSegment(("127.0.0.1:3181",)),), LedgerState.CLOSED, 1_000_000, 999, created_ms=1
        )
        yield Put(ledger_key(one), encode(metadata), ABSENT)


async def fill(store: MetadataStore, nodes: int) -> None:
    """Writes the nodes, and the namespace that they are in."""
    await store.put("/admin/policies/public", b'{"adminRoles":[],"allowedClusters":["c1"]}')
    await store.put("/admin/policies/public/default", b'{"replication_clusters":["c1"]}')
    topics = nodes // (1 + CURSORS + LEDGERS)
    for start in range(0, topics, TOGETHER):
        part = range(start, min(start + TOGETHER, topics))
        # The list first: ZooKeeper has no cursor without the node above it.
        await asyncio.gather(*[store.put_all([*nodes_of_topic(number)]) for number in part])
    await store.close()


def verify(url: str) -> str:
    """Returns the line of one run."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "magnetar", "metadata", "verify", url]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = " ".join((ended.stdout + ended.stderr).split())
    return f"{took:.1f} s, {cpu:.1f} s of CPU: {said}"


async def fill_file(path: Path, nodes: int) -> None:
    """Makes the store in a file."""
    await fill(SqliteMetadataStore(path), nodes)


async def fill_zookeeper(url: str, nodes: int) -> None:
    """Makes the store in ZooKeeper."""
    parsed = parse_store_url(url)
    assert parsed is not None
    await fill(await ZookeeperMetadataStore.open(parsed, session_timeout_s=30, timeout_s=60), nodes)


def main() -> None:
    """Makes each store and verifies it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "file" in arguments.only:
            path = folder / "metadata.sqlite"
            url = f"file:{path}"
            asyncio.run(fill_file(path, arguments.nodes))
            for _ in range(arguments.runs):
                print(f"file: {verify(url)}", flush=True)
        if "zookeeper" in arguments.only:
            zookeeper = ZooKeeper(f"{os.environ['MAGNETAR_PULSAR_HOME']}/lib/*", folder)
            zookeeper.start()
            try:
                url = f"zk:{zookeeper.address}/verified"
                asyncio.run(fill_zookeeper(url, arguments.nodes))
                for _ in range(arguments.runs):
                    print(f"zookeeper: {verify(url)}", flush=True)
            finally:
                zookeeper.stop()


if __name__ == "__main__":
    main()
