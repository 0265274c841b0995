"""What does a bookie with many idle ledgers cost, and how fast is a lost index rebuilt?

`python -m bench.bookie_scale [--ledgers N] [--indexed N] [--rebuilt-mib MIB]`

Prints lines: seconds of a start and MiB of memory with 100,000 ledgers and without any (processes of their own), rounds
of garbage collection in ms, bytes of the location index before and after deletion, restart and compaction, and entries
per second of an index rebuild. The metadata store of the garbage collection answers at once, so only the bookie's part
is timed. The entry cache's policy has no part in it.
"""

from __future__ import annotations

import argparse
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from bench.processes import memory
from bookie_stub.base.record import KEY, frame
from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import for_directory
from bookie_stub.tools.index_rebuild import rebuild
from bookie_stub.upkeep.directory_compactions import ForcedRound

_KEY = b"k" * 20
_OUTSTANDING = 5000
_REBUILT_BYTES = 512 << 20
_SIZES = (128, 1024, 65536)
_DELETED = 10
_INDEXED = 1000
"""Entries of each ledger whose rows are deleted."""


def main(argv: list[str] | None = None) -> int:
    """Measures idle ledgers, the location index, and the rebuild for three entry sizes."""
    parser = argparse.ArgumentParser("python -m bench.bookie_scale", description="Many ledgers, long logs.")
    parser.add_argument("--ledgers", type=int, default=100_000, metavar="N")
    parser.add_argument("--indexed", type=int, default=2000, metavar="N", help="ledgers of 1,000 entries")
    parser.add_argument("--rebuilt-mib", type=int, default=_REBUILT_BYTES >> 20, metavar="MIB")
    parser.add_argument("--data", metavar="DIR", help="where files are made (default: the temporary folder)")
    parser.add_argument("--opened", metavar="DIR", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.opened:
        return _open_and_wait(Path(arguments.opened))
    with tempfile.TemporaryDirectory(prefix="bench-scale-", dir=arguments.data) as name:
        _idle(Path(name), arguments.ledgers)
        _compact_index(Path(name) / "index", arguments.indexed)
        for size in _SIZES:
            _rebuild(Path(name) / f"of{size}", size, arguments.rebuilt_mib << 20)
    return 0


class _Open:
    """An open bookie whose event loop is this thread."""

    def __init__(self, directory: Path, metadata: _Ledgers | None = None, **settings: object) -> None:
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.bookie = Bookie.open(for_directory(directory, **settings), self._posted.put, metadata=metadata)
        self.waiting = 0
        """Adds that are not answered yet."""

    def add(self, ledger: int, entry: int, size: int) -> None:
        """Adds an entry; executes callbacks while too many adds are unanswered."""
        record = frame(KEY.pack(ledger, entry) + bytes(size - KEY.size))
        self.waiting += 1
        self.bookie.add(ledger, entry, record, _KEY, False, self._added)
        while self.waiting > _OUTSTANDING:
            self._posted.get()()

    def _added(self, rc: int, _entry: int) -> None:
        assert rc == 0, rc
        self.waiting -= 1

    def until(self, condition: Callable[[], bool]) -> None:
        """Executes the bookie's callbacks until `condition` holds."""
        while not condition():
            try:
                self._posted.get(timeout=0.01)()
            except queue.Empty:
                continue

    def close(self) -> None:
        """Waits for all adds and closes the bookie."""
        self.until(lambda: self.waiting == 0)
        self.bookie.close()


class _Ledgers:
    """`cluster_ledgers.LedgerMetadata` that answers at once."""

    def __init__(self) -> None:
        self.gone: set[int] = set()

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        """Returns the ledgers of `gone`."""
        return [ledger_id for ledger_id in ledger_ids if ledger_id in self.gone]

    def naming(self, bookie_id: str) -> list[int]:
        """Never called: only the recovery of a lost directory needs it."""
        raise NotImplementedError("nothing was lost")

    def elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        """Returns no ledger: none is over-replicated."""
        return []

    def replication_lock(self, ledger_id: int, bookie_id: str) -> AbstractContextManager[bool]:
        """Grants every lock."""
        return nullcontext(True)


def _idle(directory: Path, ledgers: int) -> None:
    many, none = directory / "many", directory / "none"
    _Open(none).close()
    filled = _Open(many)
    began = time.perf_counter()
    for ledger in range(ledgers):
        filled.add(ledger, 0, 128)
    filled.close()
    print(f"{ledgers:,} ledgers made in {time.perf_counter() - began:.1f} s", flush=True)
    start_s, mib = _started(many)
    empty_s, empty_mib = _started(none)
    print(f"start with {ledgers:,} ledgers: {start_s:.2f} s (without: {empty_s:.2f} s)")
    print(
        f"memory: {mib:.0f} MiB (without: {empty_mib:.0f} MiB),"
        f" {(mib - empty_mib) * (1 << 20) / ledgers:.0f} bytes per idle ledger",
        flush=True,
    )
    metadata = _Ledgers()
    opened = _Open(many, metadata)
    _round(opened, "GC round, nothing to delete")
    metadata.gone = set(range(0, ledgers, _DELETED))
    _round(opened, f"GC round that deletes {len(metadata.gone):,} ledgers")
    opened.close()


def _round(opened: _Open, what: str) -> None:
    began = time.perf_counter()
    opened.bookie.upkeep.collector.force(ForcedRound())
    opened.until(lambda: not opened.bookie.upkeep.collector.forced)
    print(f"{what}: {1000 * (time.perf_counter() - began):.0f} ms", flush=True)


def _started(directory: Path) -> tuple[float, float]:
    """Seconds until a process has opened the bookie, the interpreter's start included; its MiB."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "bench.bookie_scale", "--opened", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        elapsed_s = time.perf_counter() - began
        return elapsed_s, memory(process.pid).rss


def _open_and_wait(directory: Path) -> int:
    opened = _Open(directory)
    print("open", flush=True)
    sys.stdin.read()
    opened.close()
    return 0


def _compact_index(directory: Path, ledgers: int) -> None:
    """Deletes nine ledgers in ten and prints the size of the location index before and after its compaction."""
    opened = _Open(directory)
    bookie = opened.bookie
    for ledger in range(ledgers):
        for entry in range(_INDEXED):
            opened.add(ledger, entry, 64)
    opened.until(lambda: not opened.waiting)
    bookie.checkpoints.start()
    opened.until(lambda: not bookie.checkpoints.running)
    print(f"location index of {ledgers * _INDEXED:,} entries: {bookie.index_bytes:,} bytes", flush=True)
    done: list[bool] = []
    bookie.removals.delete_all(
        [each for each in range(ledgers) if each % _DELETED], lambda: done.append(True)
    )
    opened.until(lambda: bool(done))
    print(f"90 % of its ledgers deleted: {bookie.index_bytes:,} bytes", flush=True)
    opened.close()
    opened = _Open(directory)
    print(f"after a restart: {opened.bookie.index_bytes:,} bytes", flush=True)
    began = time.perf_counter()
    opened.bookie.upkeep.collector.compact_indexes([0])
    opened.until(lambda: not opened.bookie.upkeep.collector.is_compacting_index(0))
    print(
        f"compacted in {time.perf_counter() - began:.2f} s: {opened.bookie.index_bytes:,} bytes", flush=True
    )
    opened.close()


def _rebuild(directory: Path, size: int, total: int) -> None:
    opened = _Open(directory)
    for number in range(total // size):
        opened.add(number % 100, number // 100, size)
    opened.close()
    current = directory / "ledgers/current"
    began = time.perf_counter()
    done = rebuild(
        current,
        current,
        [],
        ledgers_too=False,
        share=(0, 1),
        entry_bytes_max=5 << 20,
        closed=None,
        say=lambda _: None,
    )
    elapsed_s = time.perf_counter() - began
    print(
        f"index rebuild, entries of {size:,} B: {done.entries:,} entries in {elapsed_s:.1f} s,"
        f" {done.entries / elapsed_s:,.0f} entries/s, {total / 1e6 / elapsed_s:,.0f} MB/s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
