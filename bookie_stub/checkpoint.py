"""The checkpoint: from the write cache to entry log and index, then the mark, then old journals go.

The order is the law: take the mark and swap the halves together, log, sync, location index, ledger index,
only then the mark. A step that fails leaves the mark where it was and the half in memory, and all steps are
done again, which is harmless. Shares the interpreter with the event loop, so it works in slices well under
a millisecond and sleeps between them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import NamedTuple

from bookie_stub.directories import Directories
from bookie_stub.entry_log import EntryLogWriter
from bookie_stub.errors import BookieError
from bookie_stub.garbage_collector import GarbageCollector
from bookie_stub.journal import Journal
from bookie_stub.journal_file import Mark
from bookie_stub.ledger_index import LedgerData, LedgerIndex
from bookie_stub.location_index import LOCATION, LocationIndex
from bookie_stub.metrics import BookieStats
from bookie_stub.posting import Post, post_quietly
from bookie_stub.record import RECORD_KEY
from bookie_stub.rocks import Breathe, Put, no_pause
from bookie_stub.write_cache import CacheHalf

log = logging.getLogger(__name__)

_APPEND_SLICE = 128
"""Entries between two breaths: about 0.2 ms."""
_FREE_SLICE = 2000
_BREATH_S = 0.0002
_RETRY_S = 1.0


class Checkpoint(NamedTuple):
    """What has to be safe before the mark may move to `mark`."""

    number: int
    mark: Mark
    half: CacheHalf
    changed: Mapping[int, LedgerData]
    deleted: frozenset[int]


class CheckpointWriter:
    """Does one checkpoint after the other, in whichever thread calls it."""

    def __init__(
        self,
        directories: Directories,
        logs: EntryLogWriter,
        locations: LocationIndex,
        ledgers: LedgerIndex,
        garbage: GarbageCollector,
        stats: BookieStats,
    ) -> None:
        self._directories = directories
        self._logs = logs
        self._locations = locations
        self._ledgers = ledgers
        self._garbage = garbage
        self._stats = stats
        self._collected_once = False

    def write(self, checkpoint: Checkpoint, breathe: Breathe = no_pause) -> None:
        """Everything but the mark. Raises OSError or BookieError; then it is to be called again as a whole."""
        started = time.perf_counter_ns()
        try:
            puts = self._append(checkpoint.half, breathe)
            self._logs.sync()
        except OSError:
            self._logs.abandon()
            raise
        if puts or checkpoint.deleted:
            self._locations.write(puts, checkpoint.deleted, breathe)
        if checkpoint.changed or checkpoint.deleted:
            self._ledgers.write(checkpoint.changed, checkpoint.deleted)
        if puts:
            self._stats.flush.observe((time.perf_counter_ns() - started) / 1e6)
            self._stats.flush_entries.observe(len(puts))
        self._stats.checkpoints += 1

    def failed(self) -> None:
        self._stats.checkpoint_failures += 1

    def move_mark(self, mark: Mark) -> None:
        self._directories.write_mark(mark)

    def collect(
        self, checkpoint: Checkpoint, living: Callable[[int], bool], breathe: Breathe = no_pause
    ) -> None:
        if checkpoint.deleted or not self._collected_once:
            self._collected_once = True
            self._stats.reclaimed_bytes += self._garbage.collect(living, breathe)

    def _append(self, half: CacheHalf, breathe: Breathe) -> list[Put]:
        """Append in order of ledger and entry, so that a ledger's entries lie together in the log."""
        puts: list[Put] = []
        append, pack = self._logs.append, LOCATION.pack
        for ledger_id in sorted(half.entries):
            entries = half.entries.get(ledger_id)
            if entries is None:
                continue  # deleted while this flush was running
            for entry_id in sorted(entries):
                record = entries[entry_id]
                puts.append((record[RECORD_KEY], pack(append(record, ledger_id))))
                if len(puts) % _APPEND_SLICE == 0:
                    breathe()
        return puts


class Checkpointer:
    """The checkpoint's thread: asks for a checkpoint every interval, writes the one it is given."""

    def __init__(
        self,
        writer: CheckpointWriter,
        journal: Journal,
        *,
        interval_s: float,
        backups: int,
        living: Callable[[int, int], bool],
        post: Post,
        due: Callable[[], None],
        done: Callable[[Checkpoint], None],
    ) -> None:
        """`due` and `done` are posted into the loop; `due` may answer with `submit`.

        `living(checkpoint number, ledger id)`: whether an entry log is still needed for the ledger once that
        checkpoint is done.
        """
        self._writer = writer
        self._journal = journal
        self._interval_s = interval_s
        self._backups = backups
        self._living = living
        self._post = post
        self._due = due
        self._done = done
        self._queue: SimpleQueue[Checkpoint | None] = SimpleQueue()
        self._closing = threading.Event()
        self.unfinished: Checkpoint | None = None
        """Submitted and not yet safe."""
        self._thread = threading.Thread(target=self._run, name="bookie-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, checkpoint: Checkpoint) -> None:
        self.unfinished = checkpoint
        self._queue.put(checkpoint)

    def close(self) -> None:
        """End the thread; a running checkpoint goes on to its end, a failing one is given up."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()

    def run(self, checkpoint: Checkpoint, breathe: Breathe = no_pause) -> None:
        """In the calling thread. Raises OSError or BookieError."""
        self._writer.write(checkpoint, breathe)
        self._writer.move_mark(checkpoint.mark)
        self._journal.remove_older(checkpoint.mark, self._backups)

    def _run(self) -> None:
        while True:
            try:
                checkpoint = self._queue.get(timeout=self._interval_s)
            except Empty:
                post_quietly(self._post, self._due)
                continue
            if checkpoint is None:
                return
            self._run_until_done(checkpoint)
            records = self._records_of(checkpoint.half)
            del checkpoint
            while records:
                del records[-_FREE_SLICE:]
                self._breathe()

    def _records_of(self, half: CacheHalf) -> list[bytes]:
        """All records, so that they can be freed a few at a time: a big half at once stops all threads."""
        records: list[bytes] = []
        for entries in list(half.entries.values()):
            rest = iter(entries.values())
            while taken := list(islice(rest, _FREE_SLICE)):
                records += taken
                self._breathe()
        return records

    def _run_until_done(self, checkpoint: Checkpoint) -> None:
        failures = 0
        while True:
            try:
                self.run(checkpoint, self._breathe)
                break
            except Exception as error:  # whatever it is: giving up would end with a full write cache
                failures += 1
                self._writer.failed()
                if failures == 1:
                    unexpected = not isinstance(error, OSError | BookieError)
                    text = "checkpoint %d failed, trying again: %s"
                    log.error(text, checkpoint.number, error, exc_info=unexpected)
            if self._closing.wait(_RETRY_S):
                return
        self.unfinished = None
        if failures:
            log.warning("checkpoint %d succeeded after %d failures", checkpoint.number, failures)
        post_quietly(self._post, lambda: self._done(checkpoint))
        try:
            self._writer.collect(checkpoint, partial(self._living, checkpoint.number), self._breathe)
        except OSError as error:
            log.warning("garbage collection: %s", error)

    def _breathe(self) -> None:
        if not self._closing.is_set():
            time.sleep(_BREATH_S)
