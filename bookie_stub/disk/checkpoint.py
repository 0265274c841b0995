"""The checkpoint: writes out the flushing write cache, then moves the marks.

BookKeeper: `SyncThread` and `SingleDirectoryDbLedgerStorage.checkpoint`. The order is the law, as each step relies on the
one before:

1. the loop reads the journals' marks and swaps the write caches in one step, so everything before the marks is in the
   flushing write cache or already on disk
2. in each ledger directory (`LedgerStorage.flush`): entry log, its sync, tombstones, location index, ledger index,
   inventory
3. when all directories are done: the marks. They move last, because a replay skips everything before them
4. journals before the marks are removed

A checkpoint that fails for want of space would hold up the deletions after it, which free space. So these pass it, as a
removal: a checkpoint without entries, whose marks do not move.

A step that fails leaves the marks and the flushing write cache as they are, and the checkpoint is tried again every
second. Repeating a directory's steps is harmless; a directory that is done is passed over, and when only the marks are
missing only they are written. A journal that cannot be removed waits for the next checkpoint.

The thread shares the interpreter with the event loop, so it works in slices well below a millisecond and sleeps between
them. While adds wait for the checkpoint it does not sleep.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

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
"""Records that are freed at a time."""
_FREE_BYTES = 1 << 20
"""Bytes that are freed at a time. Large pieces have pages of their own: giving back a MiB of them takes up to 0.7 ms."""
_PAUSE_S = 0.0002
_RETRY_S = 1.0


class Checkpoint(NamedTuple):
    """Everything that must be on disk before the marks move."""

    number: int
    """Counts up from 1; a start uses 0 for what it replays."""
    marks: Marks
    """The ends of the journals when the write caches were swapped."""
    cache: WriteCache
    """The flushing write cache."""
    changed: Mapping[int, LedgerData]
    """New rows of the ledger index."""
    deleted: frozenset[int]
    """Ledgers that leave both indexes and get a tombstone."""
    emptied: frozenset[int] = frozenset()
    """Ledgers whose older rows leave the location index, before the entries in `cache` get theirs."""


class CheckpointWriter:
    """Writes one checkpoint after the other, in its caller's thread."""

    def __init__(self, directories: Directories, storages: Storages, stats: BookieStats) -> None:
        self._directories = directories
        self._storages = storages
        self._stats = stats
        self._failed: Checkpoint | None = None
        """The last one, if a directory of it failed."""
        self._done: set[int] = set()
        """The places of the ledger directories that have written their share of `_failed`."""

    def write(self, checkpoint: Checkpoint, pause: Pause = no_pause) -> None:
        """Writes everything but the marks.

        Raises OSError or BookieError of the first directory that failed, when the others are done. The caller must then
        call it again with the same checkpoint.
        """
        started = time.perf_counter_ns()
        # Another checkpoint: no directory has its share of this one yet.
        if checkpoint is not self._failed:
            self._done.clear()
        storages = self._storages
        shares = zip(
            storages.all,
            # `list` copies in one step: the loop removes a deleted ledger from this dictionary at any time.
            storages.shares(list(checkpoint.cache.entries)),
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
            # A removal may have passed this checkpoint: a ledger that it has deleted must not get a row again.
            dead = storage.tombstones
            rows = {
                ledger_id: checkpoint.changed[ledger_id] for ledger_id in changed if ledger_id not in dead
            }
            try:
                written += storage.flush(checkpoint.cache, ledger_ids, rows, deleted, emptied, pause)
            except (OSError, BookieError) as error:
                # Go on with the other directories: each one that is done now need not be written again.
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

    def remove(self, removal: Checkpoint, pause: Pause = no_pause) -> None:
        """Takes the ledgers of a removal out of the indexes. OSError or BookieError; it must then be called again."""
        storages = self._storages
        shares = zip(
            storages.all, storages.shares(removal.deleted), storages.shares(removal.emptied), strict=True
        )
        for storage, deleted, emptied in shares:
            if deleted or emptied:
                storage.flush(removal.cache, (), {}, deleted, emptied, pause)

    def failed(self) -> None:
        """Counts an attempt that failed, whatever step it was."""
        self._stats.checkpoint_failures += 1

    def move_marks(self, marks: Marks) -> None:
        """Writes the marks into all ledger directories. Raises OSError."""
        self._directories.write_marks(marks)


class Checkpointer:
    """The checkpoint's thread, which writes the checkpoints that are submitted.

    It asks for one when none was submitted for an interval.
    """

    def __init__(
        self,
        writer: CheckpointWriter,
        journals: Journals,
        *,
        interval_s: float,
        backups: int,
        marks: Marks,
        post: Post,
        due: Callable[[], None],
        done: Callable[[Checkpoint], None],
        failed: Callable[[], None],
        removed: Callable[[Checkpoint], None],
        awaited: Callable[[], bool],
    ) -> None:
        """Takes the calls that connect the thread with the loop.

        `due` is posted after `interval_s` without a checkpoint, `done` after each checkpoint, `failed` after each
        attempt that failed, `removed` after each removal.

        `due` may call `submit`, `failed` may call `submit_removal`. `marks` are those on disk. `awaited` returns whether
        adds wait for the flushing write cache; the thread then does not sleep between its slices. `backups` older journals
        are kept (`journalMaxBackups`).
        """
        self._writer = writer
        self._journals = journals
        self._interval_s = interval_s
        self._marks = marks
        """The marks on disk."""
        self._backups = backups
        self._post = post
        self._due = due
        self._done = done
        self._failed = failed
        self._removed = removed
        self._awaited = awaited
        self._queue: SimpleQueue[Checkpoint | Literal["journals"] | None] = SimpleQueue()
        self._closing = threading.Event()
        self.unfinished: Checkpoint | None = None
        """The checkpoint that was submitted and is not on disk yet; a stop runs it once more."""
        self._removal: Checkpoint | None = None
        """A removal that passes `unfinished`; written between two attempts."""
        self._written: Checkpoint | None = None
        """A checkpoint of which only the marks are missing."""
        # A daemon, so that a start which fails after this line can end the process without `close`.
        self._thread = threading.Thread(target=self._run, name="bookie-checkpoint", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, checkpoint: Checkpoint) -> None:
        """Has the thread write a checkpoint. The one before it must be done."""
        self.unfinished = checkpoint
        # Not taken, so the caller submits it as a checkpoint instead.
        self._removal = None
        self._queue.put(checkpoint)

    def submit_removal(self, removal: Checkpoint) -> None:
        """Has the thread write a removal before the next attempt at the checkpoint that fails.

        `removed` is posted, unless the checkpoint succeeds first.
        """
        self._removal = removal

    def free_journals(self) -> None:
        """Has the thread remove journals that the marks on disk cover, as after a checkpoint."""
        self._queue.put("journals")

    def close(self) -> None:
        """Ends the thread. A running attempt comes to its end; one that failed is not tried again."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()

    def run(self, checkpoint: Checkpoint, pause: Pause = no_pause) -> None:
        """Writes a checkpoint in the calling thread, and removes old journals.

        Raises OSError or BookieError. The caller must then call it again with the same checkpoint; steps that are done
        are not repeated.
        """
        # Without this a mark that cannot be written would have all entries appended again every second.
        if checkpoint is not self._written:
            self._writer.write(checkpoint, pause)
            self._written = checkpoint
        self._writer.move_marks(checkpoint.marks)
        self._written = None
        self._marks = checkpoint.marks
        self._remove_old_journals()

    def write_removal(self, removal: Checkpoint) -> None:
        """Writes a removal in the calling thread, for a stop. OSError or BookieError."""
        self._writer.remove(removal)

    def _remove_old_journals(self) -> None:
        try:
            self._journals.remove_older(self._marks, self._backups, self._due)
        except Exception as error:  # whatever it is: the checkpoint is safe, and the next one tries again
            log.warning(
                "old journals stay until the next checkpoint: %s",
                error,
                exc_info=not isinstance(error, OSError | BookieError),
            )

    def _run(self) -> None:
        due_s = time.monotonic() + self._interval_s
        while True:
            try:
                checkpoint = self._queue.get(timeout=max(due_s - time.monotonic(), 0))
            except Empty:
                due_s = time.monotonic() + self._interval_s
                # Again without a checkpoint: another program may have filled the disk since the last one.
                self._remove_old_journals()
                # The loop decides whether there is something to write; this thread may not look at its structures.
                post_quietly(self._post, self._due)
                continue
            if checkpoint is None:
                return
            if checkpoint == "journals":
                self._remove_old_journals()
                continue
            self._run_until_done(checkpoint)
            due_s = time.monotonic() + self._interval_s
            records = self._records_of(checkpoint.cache)
            # The last reference to the write cache: from here on `records` alone keeps its memory.
            del checkpoint
            while records:
                del records[-free_slice(records) :]
                self._pause()

    def _records_of(self, cache: WriteCache) -> list[Record]:
        """Returns all records, to be freed a few at a time.

        Freeing a full write cache in one step holds the interpreter's lock, which stops the loop and all threads.
        """
        records: list[Record] = []
        # Copied in one step: the loop removes a deleted ledger from this dictionary at any time.
        for entries in list(cache.entries.values()):
            rest = entries.pieces()
            while some := list(islice(rest, _FREE_SLICE)):
                records += some
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
                # Once, and not every second: a full disk would fill the log of the process as well.
                if failures == 1:
                    unexpected = not isinstance(error, OSError | BookieError)
                    text = "checkpoint %d failed, it is tried again every %g s: %s"
                    log.error(text, checkpoint.number, _RETRY_S, error, exc_info=unexpected)
                post_quietly(self._post, self._failed)
            # A wait for the event and not a sleep: `close` ends it at once.
            if self._closing.wait(_RETRY_S):
                return
            self._pass_removal()
        self.unfinished = None
        if failures:
            log.warning("checkpoint %d succeeded after %d failures", checkpoint.number, failures)
        post_quietly(self._post, partial(self._done, checkpoint))

    def _pass_removal(self) -> None:
        removal, self._removal = self._removal, None
        if removal is None:
            return
        try:
            self._writer.remove(removal, self._pause)
        except Exception:  # whatever it is: the checkpoint has said why, and the next pass tries again
            self._removal = removal
            log.debug("removal %d failed", removal.number, exc_info=True)
        else:
            post_quietly(self._post, partial(self._removed, removal))

    def _pause(self) -> None:
        if not self._closing.is_set() and not self._awaited():
            # Sleeping gives the interpreter's lock away, so a loop that waits for it runs between two slices.
            time.sleep(_PAUSE_S)


def free_slice(records: Sequence[Record]) -> int:
    """Returns how many records may be freed in one step. They are counted from the end; it is at least one."""
    size = count = 0
    for record in islice(reversed(records), _FREE_SLICE):
        size += len(record)
        count += 1
        if size >= _FREE_BYTES:
            break
    return count
