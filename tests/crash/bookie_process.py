"""The bookie that is killed: `python -m tests.crash.bookie_process DIR`, a process of its own on a port of its own.

Small files and short intervals, so that every kind of operation comes soon. Ledgers that `DIR/gone` names do not exist
in its metadata store any more. `DIR/ready` has the port.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bookie_stub.bookie import Bookie
from bookie_stub.config import BookieSettings, CollectionSettings, for_directory
from bookie_stub.server import BookieServer
from tests.crash.crash_points import CrashPoints


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
        collection=CollectionSettings(wait_s=0.05, minor_interval_s=0.05, minor_threshold=0.5, rate=0),
    )


class Gone:
    """`collection.LedgerMetadata`: all ledgers exist but those that are written down."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        names = self._path.read_text().split() if self._path.exists() else []
        return sorted(set(map(int, names)) & set(ledger_ids))

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
        metadata=Gone(directory / "gone"),
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
