"""The bookie: joins its parts, opens them and closes them.

It also tells the parts when a checkpoint has ended.

Callers use the parts directly. The `wire` room calls `adds`, `reads`, `records`, `last_confirmed` and `lists`; the
`http` room reads `state` and `upkeep`. The methods of `Bookie` itself are those that a broker needs which embeds it
(`bookkeeper.client.embedded`).

Rules for all calls: they come from the loop's thread and never block; at the end of a turn the loop may write the journal
of a quick disk (`journal.py`). Completions come in that thread, never inside
the call that asked; an add completes after the journal's sync. An internal failure is answered 101, never "no entry".
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from bookie_stub.base.disk_space import disk_space
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import BookieStats, Summary
from bookie_stub.base.posting import Answers, AtEndOfTurn, Post
from bookie_stub.compose.checkpoints import Checkpoints
from bookie_stub.compose.start import Environment, OpenDisk, Recovered, open_disk, recover
from bookie_stub.compose.upkeep import Upkeep
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.checkpoint import Checkpoint
from bookie_stub.disk.cookie import HomeCluster
from bookie_stub.disk.read_cache import POLICIES
from bookie_stub.disk.read_cache_watch import ReadCacheWatch
from bookie_stub.disk.read_pool import ReadPool
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.journal.add_space import AddSpace
from bookie_stub.journal.entry_run import EntryRun
from bookie_stub.journal.journal import Done, nothing
from bookie_stub.journal.journals import open_journals
from bookie_stub.ledgers.adds import Adds
from bookie_stub.ledgers.availability import Availability
from bookie_stub.ledgers.entry_lists import EntryLists
from bookie_stub.ledgers.last_confirmed import LastConfirmed
from bookie_stub.ledgers.ledger_records import LedgerRecords
from bookie_stub.ledgers.reads import BatchReadDone, LedgerReads, ReadDone
from bookie_stub.ledgers.registry import LedgerRegistry
from bookie_stub.ledgers.removals import Removals
from bookie_stub.ledgers.state import BookieState
from foundation.bookie_report import BookieReport, DirectoryReport, ReadCacheReport
from protocol.bookie_frame import LAST_ENTRY, RC_OK

if TYPE_CHECKING:
    from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers


class Bookie:
    """A running bookie. Made by `open`."""

    def __init__(
        self, environment: Environment, disk: OpenDisk, recovered: Recovered, stats: BookieStats
    ) -> None:
        settings = environment.settings
        self.settings = settings
        """Fixed for the life of the bookie."""
        self.state = _new_state(environment, disk, recovered, stats)
        """Ledgers, caches, files and counters."""
        state = self.state
        self.availability = Availability(
            disk.storages.place_of,
            len(settings.ledger_directories),
            forced=settings.read_only,
            any_full_closes_all=settings.disk.any_full_is_read_only,
        )
        """Says which plain adds are refused."""
        self.checkpoints = Checkpoints(state, disk, settings, recovered.saved_marks, self._checkpoint_ended)
        """Moves entries from the write cache to the entry logs."""
        self.records = LedgerRecords(state.ledgers, state.journals, state.answers, self.availability)
        """Fences and explicit LACs."""
        self.reads = LedgerReads(state, settings.batch_bytes_max)
        """Reads of entries."""
        self.lists = EntryLists(state)
        """Lists of a ledger's entries."""
        self.last_confirmed = LastConfirmed(state.ledgers, state.write_caches, self.reads)
        """The last add confirmed of each ledger."""
        self.adds = Adds(
            state,
            self.records,
            self.last_confirmed,
            self.availability,
            held_s_max=settings.throttle_s_max,
            start_checkpoint=self.checkpoints.start,
        )
        """Adds of entries."""
        self.add = self.adds.add
        """Stores one entry; for a broker that embeds the bookie, and bound here because it runs once per message."""
        self.removals = Removals(state, self.records, self.checkpoints.start)
        """Deletions of ledgers."""
        self.upkeep = Upkeep(
            environment,
            disk,
            state,
            self.removals,
            self.adds,
            self.availability,
            self.checkpoints,
        )
        """Garbage collection and the watch over the disks."""
        self._directories = disk.directories
        self._closed = False

    @classmethod
    def open(
        cls,
        settings: BookieSettings,
        post: Post,
        *,
        file_system: FileSystem | None = None,
        cluster: HomeCluster | None = None,
        metadata: ZooKeeperLedgers | None = None,
        at_end_of_turn: AtEndOfTurn | None = None,
    ) -> Bookie:
        """Checks the directories, replays the journals and starts the threads. Blocks.

        `post` brings a callback into the loop from any thread (`loop.call_soon_threadsafe`). With a `cluster` the
        bookie's cookie must fit the one in the metadata store. With `metadata` it deletes ledgers that do not exist
        there any more, and learns after a loss which ledgers it may have lost. With `at_end_of_turn` the loop may write
        small groups of the journal itself, see `Journal`. Raises BookieError or OSError.
        """
        started = time.perf_counter()
        environment = Environment(
            settings=settings,
            post=post,
            file_system=file_system or FileSystem(),
            cluster=cluster,
            metadata=metadata,
            at_end_of_turn=at_end_of_turn,
        )
        stats = BookieStats(len(settings.journal_directories), len(settings.ledger_directories))
        disk = open_disk(environment, stats)
        try:
            recovered = recover(environment, disk, started)
        except BaseException:
            disk.storages.close()
            raise
        bookie = cls(environment, disk, recovered, stats)
        bookie.state.journals.start()
        bookie.checkpoints.open(recovered.unwritten)
        bookie.upkeep.open()
        return bookie

    # For a broker that embeds the bookie.

    def add_run(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        records: bytes,
        starts: Sequence[int],
        master_key: bytes,
        recovery: bool,
        done: Done,
    ) -> None:
        """Stores a run of entries, see `EntryRun` and `Adds.add_run`."""
        self.adds.add_run(EntryRun(ledger_id, entry_ids, records, starts, master_key, recovery, done))

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Calls `done(rc, entry)`, see `LedgerReads.read`."""
        self.reads.read(ledger_id, entry_id, done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """Calls `done(rc, entries)`, see `LedgerReads.batch_read`."""
        self.reads.batch_read(ledger_id, first, count_max, bytes_max, done)

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Fences a ledger, then reads an entry of it; calls `done(rc, entry)`.

        rc is that of the fence if it fails, else that of the read."""
        self.records.fence(ledger_id, master_key, partial(self._read_after_fence, entry_id, done))

    def _read_after_fence(self, entry_id: int, done: ReadDone, rc: int, ledger_id: int) -> None:
        if rc == RC_OK:
            self.reads.read(ledger_id, entry_id, done)
        else:
            done(rc, b"")

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns the entry log and offset of an entry, empty without one. Reads the index: for log lines only."""
        return self.state.storages.of(ledger_id).stored.file_of(ledger_id, entry_id)

    def delete_ledger(self, ledger_id: int, done: Done = nothing) -> None:
        """Deletes a ledger for good, see `Removals.delete`."""
        self.removals.delete(ledger_id, done)

    @property
    def highest_ledger_id(self) -> int:
        """The highest id of all ledgers, the deleted ones included.

        It is -1 without any ledger.

        A new ledger must have a higher id, or it would be taken for a deleted one. Scans all ledgers: for a start
        only."""
        ledgers = self.state.ledgers
        return max((*ledgers.by_id, *ledgers.deletions.hidden, self.state.storages.highest_deleted))

    # For everyone.

    @property
    def stats(self) -> BookieStats:
        """All counters."""
        return self.state.stats

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    @property
    def index_bytes(self) -> int:
        """Bytes of all location indexes on disk."""
        return sum(storage.locations.bytes_on_disk() for storage in self.state.storages.all)

    def journal_ms(self, *quantiles: float) -> list[float]:
        """Returns quantiles of the last journal writes in ms, each with its sync; NaN before the first one."""
        return Summary.merged([journal.syncs.ok for journal in self.stats.journals]).quantiles(quantiles)

    def report(self) -> BookieReport:
        """Returns the state of disks and read cache. Asks the file system, so call it in a thread."""
        paths = self.settings.ledger_directories
        disks = [shutil.disk_usage(path) for path in self._directories.ledgers]
        return BookieReport(
            self.availability.read_only,
            tuple(
                DirectoryReport(str(path), disk.used, disk.free, self.availability.is_writable(place))
                for place, (path, disk) in enumerate(zip(paths, disks, strict=True))
            ),
            ReadCacheReport(
                self.stats.read_cache_hits,
                self.stats.read_cache_misses,
                self.state.read_cache.evicted_unserved,
            ),
        )

    def disk_space(self) -> tuple[int, int]:
        """Returns (all, free) bytes of the ledger directories' disks."""
        return disk_space(self._directories.ledgers)

    def _checkpoint_ended(self, checkpoint: Checkpoint) -> None:
        # First: a load that began before this flush must not put its entries into the read cache.
        self.reads.flush_ended()
        # Only now may their entry logs be removed: until the flush the index had rows that name them.
        if checkpoint.deleted or checkpoint.emptied:
            self.upkeep.collector.nudge()
        self.adds.resume()
        self.upkeep.judge_journals()

    def close(self) -> None:
        """Syncs the journals, writes everything out and closes the files. Blocks.

        Completions are still posted. When the disk refuses the last checkpoint, the journals keep what was
        acknowledged, and the next start replays them."""
        if self._closed:
            return
        self._closed = True
        # Requests are refused first, so that nothing is queued after the journals' last group.
        self.adds.close()
        self.records.close()
        self.removals.close()
        self.upkeep.close()
        self.state.journals.close()
        self.checkpoints.close()
        self.reads.close()
        self.state.read_pool.close()
        # The threads have ended, so the last checkpoint is written by this one.
        clean = self.checkpoints.write_last()
        self.state.storages.close()
        # Removes the file DIRTY; with it the next start would take this stop for a crash.
        if clean:
            self._directories.end()


def _new_state(
    environment: Environment, disk: OpenDisk, recovered: Recovered, stats: BookieStats
) -> BookieState:
    settings = environment.settings
    ledgers = LedgerRegistry(recovered.ledgers, disk.storages.has_deleted, lossy=recovered.lossy)
    for ledger_id in recovered.deleted:
        ledgers.deletions.delete(ledger_id)
    write_caches = WriteCaches(settings.write_cache_bytes)
    if recovered.unwritten is not None:
        write_caches.flushing = recovered.unwritten.cache
    journals = open_journals(
        settings,
        disk.directories.journals,
        recovered.marks,
        environment.file_system,
        stats.journals,
        environment.post,
        ledgers.journal_failed,
        [
            AddSpace(journal, disk.directories.ledgers, environment.file_system, lambda: write_caches.size)
            for journal in disk.directories.journals
        ],
        environment.at_end_of_turn,
    )
    return BookieState(
        ledgers=ledgers,
        write_caches=write_caches,
        read_cache=POLICIES[settings.read_cache_policy](settings.read_cache_bytes),
        read_cache_watch=ReadCacheWatch(
            settings.read_cache_policy, settings.read_cache_bytes, settings.readahead_entries
        ),
        read_pool=ReadPool(settings.read_threads, environment.post),
        journals=journals,
        storages=disk.storages,
        answers=Answers(environment.post),
        stats=stats,
    )
