"""The checkpoint: from the write cache to entry logs and indexes, then the marks, then old journals go.

The order is the law: take the marks and swap the halves together; of each ledger directory log, sync, tombstones,
location index, ledger index; when all have done it, the marks. A step that fails leaves the marks where they were and
the half in memory. The directory's steps are done again, which is harmless; a directory that has its share is passed
over, and so are all of them when only the marks are missing. A journal that cannot be removed waits for the next
checkpoint. Shares the interpreter with the event loop, so it works in slices well under a millisecond and sleeps
between them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from typing import NamedTuple

from bookie_stub.base.errors import BookieError
from bookie_stub.base.metrics import BookieStats
from bookie_stub.base.posting import Post, post_quietly
from bookie_stub.base.record import Record
from bookie_stub.disk.directories import Directories
from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.disk.ledger_storage import Storages
from bookie_stub.disk.rocks import Pause, no_pause
from bookie_stub.disk.write_cache import WriteCache
from bookie_stub.journal.journal_file import Marks
from bookie_stub.journal.journals import Journals

log = logging.getLogger(__name__)

_FREE_SLICE = 2000
_FREE_BYTES = 1 << 20
"""A larger piece, such as a run or a large entry, has pages of its own: giving back a MiB of them takes up to 0.7 ms."""
_PAUSE_S = 0.0002
_RETRY_S = 1.0


class Checkpoint(NamedTuple):
    """What has to be safe before the marks may move to `marks`."""

    number: int
    marks: Marks
    cache: WriteCache
    changed: Mapping[int, LedgerData]
    deleted: frozenset[int]
    emptied: frozenset[int] = frozenset()
    """Ledgers whose rows leave the location index, before what `half` has of them comes in."""


class CheckpointWriter:
    """Does one checkpoint after the other, in whichever thread calls it."""

    def __init__(self, directories: Directories, storages: Storages, stats: BookieStats) -> None:
        self._directories = directories
        self._storages = storages
        self._stats = stats
        self._failed: Checkpoint | None = None
        self._done: set[int] = set()
        """Ledger directories that have their share of the failed checkpoint."""

    def write(self, checkpoint: Checkpoint, pause: Pause = no_pause) -> None:
        """Everything but the marks. Raises OSError or BookieError, of the first directory that failed, when the others
        have their share; then it is to be called again with the same checkpoint."""
        started = time.perf_counter_ns()
        if checkpoint is not self._failed:
            self._done.clear()
        storages, entries = self._storages, checkpoint.cache.entries
        shares = zip(
            storages.all,
            storages.shares(list(entries)),
            storages.shares(checkpoint.changed),
            storages.shares(checkpoint.deleted),
            storages.shares(checkpoint.emptied),
            strict=True,
        )
        written = 0
        problem: OSError | BookieError | None = None
        for place, (storage, ledger_ids, changed, deleted, emptied) in enumerate(shares):
            if place in self._done:
                continue
            rows = {ledger_id: checkpoint.changed[ledger_id] for ledger_id in changed}
            try:
                written += storage.flush(entries, ledger_ids, rows, deleted, emptied, pause)
            except (OSError, BookieError) as error:
                problem = problem or error
            else:
                self._done.add(place)
        self._failed = None if problem is None else checkpoint
        if problem is not None:
            raise problem
        if written:
            self._stats.flush.observe((time.perf_counter_ns() - started) / 1e6)
            self._stats.flush_entries.observe(written)
        self._stats.checkpoints += 1

    def failed(self) -> None:
        self._stats.checkpoint_failures += 1

    def move_marks(self, marks: Marks) -> None:
        self._directories.write_marks(marks)


class Checkpointer:
    """The checkpoint's thread: asks for a checkpoint every interval, writes the one it is given."""

    def __init__(
        self,
        writer: CheckpointWriter,
        journals: Journals,
        *,
        interval_s: float,
        backups: int,
        post: Post,
        due: Callable[[], None],
        done: Callable[[Checkpoint], None],
        awaited: Callable[[], bool],
    ) -> None:
        """`due` and `done` are posted into the loop; `due` may answer with `submit`. While `awaited`, adds wait for the
        checkpoint: it does not step aside for them then."""
        self._writer = writer
        self._journals = journals
        self._interval_s = interval_s
        self._backups = backups
        self._post = post
        self._due = due
        self._done = done
        self._awaited = awaited
        self._queue: SimpleQueue[Checkpoint | None] = SimpleQueue()
        self._closing = threading.Event()
        self.unfinished: Checkpoint | None = None
        """Submitted and not yet safe."""
        self._written: Checkpoint | None = None
        """All of it but the marks."""
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

    def run(self, checkpoint: Checkpoint, pause: Pause = no_pause) -> None:
        """In the calling thread. Raises OSError or BookieError; then it is to be called again with the same checkpoint,
        and does not write again what has been written."""
        if checkpoint is not self._written:
            self._writer.write(checkpoint, pause)
            self._written = checkpoint
        self._writer.move_marks(checkpoint.marks)
        self._written = None
        self._remove_old_journals(checkpoint.marks)

    def _remove_old_journals(self, marks: Marks) -> None:
        try:
            self._journals.remove_older(marks, self._backups)
        except Exception as error:  # whatever it is: the checkpoint is safe, and the next one tries again
            log.warning(
                "old journals stay for now: %s", error, exc_info=not isinstance(error, OSError | BookieError)
            )

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
            records = self._records_of(checkpoint.cache)
            del checkpoint
            while records:
                del records[-free_slice(records) :]
                self._pause()

    def _records_of(self, half: WriteCache) -> list[Record]:
        """All records, so that they can be freed a few at a time: a big half at once stops all threads."""
        records: list[Record] = []
        for entries in list(half.entries.values()):
            rest = entries.pieces()
            while taken := list(islice(rest, _FREE_SLICE)):
                records += taken
                self._pause()
        return records

    def _run_until_done(self, checkpoint: Checkpoint) -> None:
        failures = 0
        while True:
            try:
                self.run(checkpoint, self._pause)
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

    def _pause(self) -> None:
        if not self._closing.is_set() and not self._awaited():
            time.sleep(_PAUSE_S)


def free_slice(records: Sequence[Record]) -> int:
    """How many from the end on may be freed in one go; at least one."""
    size = count = 0
    for record in islice(reversed(records), _FREE_SLICE):
        size += len(record)
        count += 1
        if size >= _FREE_BYTES:
            break
    return count
