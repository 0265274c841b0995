"""The bookie: ledgers, write cache, journal and checkpoints behind a handful of calls with completions.

All calls come from the loop's thread and never block; completions come on that thread, never inside the
call that asked, adds only after the journal's sync. An entry goes to the write cache first and to the journal
second, so whatever a mark covers is in a half or in a log. A fence is answered when its record is durable,
also for a ledger without entries. An internal failure is 101, never "no entry".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from heapq import merge

from bookie_stub.base.disk_space import disk_space
from bookie_stub.base.errors import BookieError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import BookieStats
from bookie_stub.base.posting import Answer, Answers, Post
from bookie_stub.cluster.cluster_ledgers import ClusterLedgers
from bookie_stub.compose.availability import Availability
from bookie_stub.compose.start import Disk, Recovered, open_disk, recover
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.checkpoint import Checkpoint, Checkpointer
from bookie_stub.disk.directories import Cluster
from bookie_stub.disk.read_cache import POLICIES, ReadCache
from bookie_stub.disk.read_pool import ReadPool
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.journal.journal import Done
from bookie_stub.journal.journals import open_journals
from bookie_stub.ledgers.adds import Adds, Ground
from bookie_stub.ledgers.deletions import Deletions
from bookie_stub.ledgers.last_confirmed import LastConfirmed
from bookie_stub.ledgers.ledger_records import LedgerRecords
from bookie_stub.ledgers.reads import BatchReadDone, ReadDone, Reads
from bookie_stub.ledgers.removals import Removals
from bookie_stub.upkeep.disk_monitor import DiskMonitor, DiskStates
from bookie_stub.upkeep.garbage_collector import GarbageCollectorThread, KnownLedgers
from protocol.bookie_frame import (
    LAST_ENTRY,
    RC_BAD_REQUEST,
    RC_IO_ERROR,
    RC_NO_LEDGER,
    RC_OK,
    RC_READ_ONLY,
    RC_UNKNOWN_LEDGER_STATE,
)
from protocol.entry_runs import encode_entry_runs

log = logging.getLogger(__name__)

ListDone = Callable[[int, bytes], None]
"""(rc, the list as `protocol.entry_runs` writes it)"""


class Bookie:
    def __init__(
        self,
        settings: BookieSettings,
        post: Post,
        disk: Disk,
        recovered: Recovered,
        stats: BookieStats,
        file_system: FileSystem,
        metadata: ClusterLedgers | None,
    ) -> None:
        """Use `open`."""
        ledgers = recovered.ledgers
        self.settings = settings
        self.stats = stats
        self._post = post
        self._disk = disk
        self._ledgers = ledgers
        self._cache = WriteCaches(settings.write_cache_bytes)
        self._answers = Answers(post)
        self._answer = self._answers.add
        self._deletions = Deletions()
        self._journals = open_journals(
            settings,
            disk.directories.journals,
            recovered.marks,
            file_system,
            stats.journals,
            post,
            lambda its_own: self._records.journal_failed(its_own),
        )
        self._journal_of = self._journals.of
        self.lossy = recovered.lossy
        self._uncertain = self.lossy or any(ledger.limbo for ledger in ledgers.values())
        self._records = LedgerRecords(ledgers, self._journals, self._answer, self.lossy, self._has_deleted)
        self._saved_marks = recovered.marks
        self._running: Checkpoint | None = None
        self._pool = ReadPool(settings.read_threads, post)
        self.read_cache: ReadCache = POLICIES[settings.read_cache_policy](settings.read_cache_bytes)
        self._reads = self._open_reads()
        self.last_confirmed = LastConfirmed(ledgers, self._cache, self.read, self._is_unknown)
        self._adds = self._open_adds()
        # The calls as they are: a wrapper would cost a call per add.
        self.add = self._adds.add
        self.add_run = self._adds.add_run
        self._closed = False
        self._checkpointer = self._open_checkpointer()
        self._removals = self._open_removals()
        self.delete_ledger = self._removals.delete
        self.delete_ledgers = self._removals.delete_all
        known = KnownLedgers(ledgers, self._deletions.hidden, post, self._removals)
        self.collection = GarbageCollectorThread(disk.storages, known, settings, metadata, stats.collection)
        self.when_read_only_changes: Callable[[bool], None] = _to_nobody
        self._availability = Availability(settings, disk.storages.place_of)
        places = list(zip(disk.directories.ledgers, disk.directories.indexes, strict=True))
        self._monitor = DiskMonitor(places, settings.disk, post, self.disks_changed, file_system)

    def _open_adds(self) -> Adds:
        ground = Ground(
            self._ledgers,
            self._cache,
            self._journals,
            self._records,
            self._reads,
            self.last_confirmed,
            self.stats,
            self._answer,
            self._post,
        )
        return Adds(ground, self.settings.throttle_s_max, self.checkpoint)

    def _open_checkpointer(self) -> Checkpointer:
        return Checkpointer(
            self._disk.writer,
            self._journals,
            interval_s=self.settings.flush_interval_s,
            backups=self.settings.journal_backups,
            post=self._post,
            due=self.checkpoint,
            done=self._checkpoint_done,
            awaited=lambda: self._cache.full,
        )

    def _open_removals(self) -> Removals:
        return Removals(
            self._ledgers,
            self._cache,
            self._deletions,
            self._records,
            self._journals,
            self._has_deleted,
            self.checkpoint,
            self.stats,
        )

    def _open_reads(self) -> Reads:
        return Reads(
            self._ledgers,
            self._cache,
            self._deletions.hidden,
            self.read_cache,
            lambda ledger_id: self._disk.storages.of(ledger_id).stored,
            self._pool,
            self._answer,
            self.settings.batch_bytes_max,
            self.stats,
        )

    @classmethod
    def open(
        cls,
        settings: BookieSettings,
        post: Post,
        *,
        file_system: FileSystem | None = None,
        cluster: Cluster | None = None,
        metadata: ClusterLedgers | None = None,
    ) -> Bookie:
        """Check the directories, replay the journal, start the threads. Blocks; raises BookieError or OSError.

        `post` brings a callback into the loop from any thread (`loop.call_soon_threadsafe`). Without a
        `cluster` the bookie is on its own; with `metadata` it deletes ledgers that do not exist there any more,
        and finds out after a loss which ledgers it may have forgotten.
        """
        started = time.perf_counter()
        file_system = file_system or FileSystem()
        stats = BookieStats(len(settings.journal_directories), len(settings.ledger_directories))
        disk = open_disk(settings, file_system, stats, cluster)
        try:
            recovered = recover(settings, disk, metadata, started)
        except BaseException:
            disk.storages.close()
            raise
        bookie = cls(settings, post, disk, recovered, stats, file_system, metadata)
        bookie._journals.start()
        bookie._checkpointer.start()
        bookie.collection.start()
        bookie.disks_changed(bookie._monitor.look())
        bookie._monitor.start()
        return bookie

    # Reads.

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """`done(rc, entry)`; entry id -1 asks for the last entry."""
        if self._uncertain and self._is_unknown(ledger_id, entry_id):
            self.stats.refused()
            self._answer(partial(done, RC_UNKNOWN_LEDGER_STATE, b""))
        else:
            self._reads.read(ledger_id, entry_id, done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """`done(rc, entries)`: consecutive entries from `first` on, at least one when rc is 0.

        `count_max` <= 0 sets no count; `bytes_max` is the size of the whole answer on the wire: 36 bytes and
        for each entry 4 more than it has (and never more than maxBatchReadSize).
        """
        if self._uncertain and self._is_unknown(ledger_id, first):
            self.stats.refused()
            self._answer(partial(done, RC_UNKNOWN_LEDGER_STATE, []))
        else:
            self._reads.batch_read(ledger_id, first, count_max, bytes_max, done)

    def _is_unknown(self, ledger_id: int, entry_id: int) -> bool:
        """Whether neither yes nor no can be said: "no such ledger" of a bookie that may have lost ledgers, and the
        last entry of a ledger that may have lost entries. A single entry that is there is served."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return self.lossy and not self._has_deleted(ledger_id)
        return ledger.limbo and entry_id == LAST_ENTRY

    def list_entries(self, ledger_id: int, done: ListDone) -> None:
        """`done(rc, runs)`: the ids of all entries, as the v3 wire lists them."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or ledger.limbo:
            unknown = self._is_unknown(ledger_id, LAST_ENTRY)
            self._answer(partial(done, RC_UNKNOWN_LEDGER_STATE if unknown else RC_NO_LEDGER, b""))
            return
        cached = sorted({entry_id for half in self._cache.entries_of(ledger_id) for entry_id in half.ids()})
        stored = ledger_id not in self._deletions.hidden
        self._pool.submit(
            partial(self._listed, ledger_id, cached, stored, done), partial(done, RC_IO_ERROR, b"")
        )

    def _listed(self, ledger_id: int, cached: list[int], stored: bool, done: ListDone) -> Answer:
        """In a reader's thread."""
        in_logs = self._disk.storages.of(ledger_id).locations.entry_ids(ledger_id) if stored else iter(())
        return partial(done, RC_OK, encode_entry_runs(merge(cached, in_logs)))

    def disk_space(self) -> tuple[int, int]:
        """Bytes of the ledger directories' disks: all, and free."""
        return disk_space(self._disk.directories.ledgers)

    # Fences, explicit LACs, deletion.

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Refuse plain adds from now on; once that is durable, read: `done(rc, entry)`, rc 2 without one."""
        self.fence_ledger(ledger_id, master_key, partial(self._fenced_read, entry_id, done))

    def _fenced_read(self, entry_id: int, done: ReadDone, rc: int, ledger_id: int) -> None:
        if rc == RC_OK:
            self.read(ledger_id, entry_id, done)
        else:
            done(rc, b"")

    def fence_ledger(self, ledger_id: int, master_key: bytes, done: Done) -> None:
        """`done(rc, ledger id)` once the fence is durable: 0; 1 deleted, 102 another key, 101 when it is not."""
        if self._closed or ledger_id < 0:
            self._answer(partial(done, RC_IO_ERROR if self._closed else RC_NO_LEDGER, ledger_id))
        else:
            self._records.fence(ledger_id, master_key, done)

    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes, done: Done) -> None:
        """`done(rc, ledger id)` once an explicit LAC at least as high as the body's is durable."""
        if self._closed or ledger_id < 0 or self._availability.refuses(ledger_id):
            rc = RC_IO_ERROR if self._closed else RC_BAD_REQUEST if ledger_id < 0 else RC_READ_ONLY
            self._answer(partial(done, rc, ledger_id))
        else:
            self._records.write_lac(ledger_id, master_key, body, done)

    def force_ledger(self, ledger_id: int, done: Done) -> None:
        """`done(0, ledger id)` once everything that was added before is durable."""
        if self._closed:
            self._answer(partial(done, RC_IO_ERROR, ledger_id))
        else:
            self._journal_of(ledger_id).append(b"", done, ledger_id)

    def _has_deleted(self, ledger_id: int) -> bool:
        return self._deletions.has_deleted(ledger_id) or self._disk.storages.has_deleted(ledger_id)

    # Checkpoints.

    def checkpoint(self) -> None:
        """Start one, unless one is running or there is nothing to write."""
        if self._closed or self.checkpoint_running:
            return
        self._running = self._next_checkpoint()
        if self._running is not None:
            self._checkpointer.submit(self._running)

    def _next_checkpoint(self) -> Checkpoint | None:
        marks = self._journals.marks  # before the swap: whatever they cover is then in the swapped half
        nothing_new = marks == self._saved_marks and not self._records.changed and not self._deletions
        if nothing_new and not self._cache.active.entries:
            return None
        changed = self._records.take_changed()
        number, deleted, emptied = self._deletions.take()
        return Checkpoint(number, marks, self._cache.swap(), changed, deleted, emptied)

    def _checkpoint_done(self, checkpoint: Checkpoint) -> None:
        if self._closed:
            return
        self._running = None
        self._saved_marks = checkpoint.marks
        self._cache.flushed()
        self._reads.flushed()
        self._deletions.done(checkpoint.number)
        if checkpoint.deleted or checkpoint.emptied:
            self.collection.nudge()
        if self._deletions.waiting and self._deletions.hidden:
            self.checkpoint()
        if self._cache.active_full:
            self.checkpoint()
        self._adds.room()

    # The rest.

    def disks_changed(self, disks: DiskStates) -> None:
        """What each ledger directory has room for: adds, compactions."""
        self.collection.disks_changed(disks)
        before = self.read_only
        self._availability.disks_changed(disks)
        self._adds.refuse(self._availability.refusal)
        if self.read_only != before:
            self.when_read_only_changes(self.read_only)

    def close(self) -> None:
        """Sync the journal, write everything out, close the files. Blocks; completions are still posted.

        When the disk refuses, the journal still has what was acknowledged, and the next start replays it.
        """
        if self._closed:
            return
        self._closed = True
        self._adds.close()
        self._removals.close()
        self._monitor.close()
        self.collection.close()
        self._journals.close()
        self._checkpointer.close()
        self._reads.close()
        self._pool.close()
        clean = self._last_checkpoint()
        self._disk.storages.close()
        if clean:
            self._disk.directories.end()

    def _last_checkpoint(self) -> bool:
        try:
            if self._checkpointer.unfinished is not None:
                self._checkpointer.run(self._checkpointer.unfinished)
            self._cache.flushed()
            checkpoint = self._next_checkpoint()
            if checkpoint is not None:
                self._checkpointer.run(checkpoint)
            self._disk.storages.finish()
        except (OSError, BookieError) as error:
            log.error("the last checkpoint failed, the next start replays the journal: %s", error)
            return False
        return True

    @property
    def read_only(self) -> bool:
        """Only adds of a recovery are taken, whatever the ledger."""
        return self._availability.read_only

    @property
    def writable_directories(self) -> int:
        """Ledger directories that take plain adds."""
        return self._availability.writable_directories

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def ledger_count(self) -> int:
        return len(self._ledgers)

    @property
    def checkpoint_running(self) -> bool:
        """While it is, no other is started."""
        return self._running is not None

    @property
    def highest_ledger_id(self) -> int:
        """Of all that are here or were deleted; -1 for none. A new ledger must have a higher one. Looks at all."""
        return max((*self._ledgers, *self._deletions.hidden, self._disk.storages.highest_deleted))

    @property
    def entry_count(self) -> int:
        """About: RocksDB's estimate for the index, and what is in the write cache."""
        return self._disk.storages.entry_count_estimate() + self._cache.count()

    @property
    def index_bytes(self) -> int:
        """Of all location indexes, as files."""
        return sum(storage.locations.bytes_on_disk() for storage in self._disk.storages.all)

    @property
    def entry_log_count(self) -> int:
        return self._disk.storages.entry_log_count()

    @property
    def write_cache(self) -> WriteCaches:
        return self._cache

    @property
    def journal_queue_length(self) -> int:
        return self._journals.queue_length

    @property
    def read_queue_length(self) -> int:
        return self._pool.queue_length


def _to_nobody(_read_only: bool) -> None:
    """Who is on their own tells no cluster."""
