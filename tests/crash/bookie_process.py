"""The bookie that is killed: `python -m tests.crash.bookie_process DIR`, a process of its own on a port of its own.

Small files and short intervals, so that every kind of operation comes soon. Ledgers that `DIR/gone` names do not exist
in its metadata store any more, those of `DIR/elsewhere` are closed and on other bookies. `DIR/ready` has the port.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers
from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import BookieSettings, CollectionSettings
from bookie_stub.wire.server import BookieServer
from tests.crash.crash_points import CrashPoints
from tests.support.bookie_settings import for_directory


def settings_of(directory: Path) -> BookieSettings:
    return for_directory(
        directory / "data",
        port=0,
        journal_bytes_max=400_000,
        journal_allocate_bytes=100_000,
        journal_backups=0,
        write_cache_bytes=1 << 20,
        read_cache_bytes=1 << 20,
        flush_interval_s=0.03,
        entry_log_bytes_max=100_000,
        collection=CollectionSettings(
            wait_s=0.05,
            over_replicated_wait_s=0.05,
            metadata_rate=1_000_000,
            minor_interval_s=0.05,
            minor_threshold=0.5,
            rate=0,
            index_interval_s=0.05,
        ),
    )


class Cluster(ZooKeeperLedgers):
    """Stands for ZooKeeper: all ledgers exist and are here but those that are written down."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        return self._written_down("gone", ledger_ids)

    def elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        return self._written_down("elsewhere", ledger_ids)

    def _written_down(self, name: str, ledger_ids: Sequence[int]) -> list[int]:
        path = self._directory / name
        names = path.read_text().split() if path.exists() else []
        return sorted(set(map(int, names)) & set(ledger_ids))

    @contextmanager
    def replication_lock(self, ledger_id: int, bookie_id: str) -> Iterator[bool]:
        yield True

    def naming(self, bookie_id: str) -> list[int]:
        raise NotImplementedError("nothing was lost")


async def run(directory: Path) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    bookie = Bookie.open(
        settings_of(directory),
        loop.call_soon_threadsafe,
        file_system=CrashPoints.from_environment(),
        metadata=Cluster(directory),
        at_end_of_turn=lambda callback: loop.call_soon(callback, 0),
    )
    server = BookieServer(bookie)
    await server.start()
    temporary = directory / "ready.tmp"
    temporary.write_text(str(server.port))
    os.replace(temporary, directory / "ready")
    await stop.wait()
    await server.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
