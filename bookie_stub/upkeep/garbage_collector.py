"""GarbageCollectorThread: frees the disk space of ledgers that no longer exist.

BookKeeper: `GarbageCollectorThread`, `ScanAndCompareGarbageCollector`. A complete round

1. asks the metadata store which ledgers of this bookie do not exist any more, and deletes those
2. gives up the entries of over-replicated ledgers, if that is due
3. removes entry logs in which no ledger lives
4. compacts logs and indexes, if that is due

It runs every `gcWaitTime` and when a request asks for it; after a checkpoint that took deleted ledgers out of the indexes
only step 3 runs, and with `isForceGCAllowWhenNoSpace` step 4 on disks without space. The law: an error deletes nothing.
Ledgers are deleted in the loop, a few hundred at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bookie_stub.base.errors import BookieError
from bookie_stub.base.metrics import CollectionStats
from bookie_stub.base.posting import BoundCompletion, Post, post_quietly
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.ledger_storage import Storages
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.removals import Removals
from bookie_stub.upkeep.directory_compactions import DirectoryCompactions, ForcedRound
from bookie_stub.upkeep.disk_monitor import DiskStates
from bookie_stub.upkeep.log_usage import LogUsage
from bookie_stub.upkeep.over_replicated import OverReplicatedLedgers

if TYPE_CHECKING:
    from bookie_stub.cluster.zookeeper_ledgers import ZooKeeperLedgers

log = logging.getLogger(__name__)

_PAUSE_S = 0.0002
_DELETED_AT_A_TIME = 500
"""Ledgers that the loop deletes in one callback: about two milliseconds."""
_CHECKPOINT_WAIT_S = 30.0
"""How long a round waits for the checkpoint that takes deleted ledgers out of the indexes."""


class KnownLedgers:
    """The bookie's ledgers as the collector's thread sees them. The loop's thread changes them meanwhile."""

    def __init__(
        self,
        ledgers: Mapping[int, Ledger],
        hidden: Container[int],
        post: Post,
        removal: Removals,
    ) -> None:
        """`hidden` has deleted and emptied ledgers that may still have rows."""
        self._ledgers = ledgers
        self._hidden = hidden
        self._post = post
        self._removal = removal

    def ids(self) -> list[int]:
        """Returns the ids of all ledgers, ascending."""
        return sorted(list(self._ledgers))  # noqa: C414 - the copy is made in one step, the loop goes on adding

    def with_entries(self) -> list[int]:
        """Returns the ledgers that may have entries in a log, ascending."""
        return [ledger_id for ledger_id in self.ids() if self._needs_logs(ledger_id)]

    def living(self, ledger_id: int) -> bool:
        """Returns whether an entry log is still needed for a ledger.

        It is while the index may have rows of a deleted ledger, since a row must never name a log that no longer exists.
        """
        return ledger_id in self._hidden or self._needs_logs(ledger_id)

    def _needs_logs(self, ledger_id: int) -> bool:
        ledger = self._ledgers.get(ledger_id)
        return ledger is not None and ledger.needs_logs

    def delete(self, ledger_ids: Sequence[int], done: BoundCompletion) -> None:
        """Has the loop delete ledgers. `done` runs when a checkpoint has taken them out of the indexes."""
        post_quietly(self._post, partial(self._removal.delete_all, ledger_ids, done))

    def empty(self, ledger_ids: Sequence[int], done: BoundCompletion) -> None:
        """Has the loop give up entries of ledgers; `done` as above."""
        post_quietly(self._post, partial(self._removal.empty_all, ledger_ids, done))


class GarbageCollectorThread:
    """Runs one round after the other. Its calls come from the loop's thread."""

    def __init__(
        self,
        storages: Storages,
        ledgers: KnownLedgers,
        settings: BookieSettings,
        metadata: ZooKeeperLedgers | None,
        stats: CollectionStats,
    ) -> None:
        """`metadata` None: only `Bookie.delete_ledger` deletes ledgers."""
        own = settings.collection
        self._closing = threading.Event()
        whole_log_bytes = settings.entry_log_bytes_max if own.by_whole_logs else 1
        self._directories = [
            DirectoryCompactions(
                LogUsage(storage, self._pause, whole_log_bytes),
                ledgers.living,
                own,
                stats,
                directory_stats,
                self._closing,
            )
            for storage, directory_stats in zip(storages.all, stats.directories, strict=True)
        ]
        self._ledgers = ledgers
        self._settings = own
        self._metadata = metadata
        self._over_replicated = None
        if metadata is not None:
            self._over_replicated = OverReplicatedLedgers(
                metadata,
                settings.bookie_id,
                ledgers.with_entries,
                ledgers.empty,
                wait_s=own.over_replicated_wait_s,
                rate=own.metadata_rate,
                closing=self._closing,
            )
        self.stats = stats
        """Counters of rounds, compactions and freed bytes."""
        self._wake = threading.Event()
        self._force: ForcedRound | None = None
        self.forced = False
        """True while a round that was asked for is due or under way."""
        self._indexes_to_compact: set[int] = set()
        """Places of the ledger directories whose location index is to be compacted."""
        self._next_s = time.monotonic() + own.wait_s
        self._thread = threading.Thread(target=self._run, name="bookie-gc", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. A compaction that is copying is given up; one that changes the index comes to its end."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def nudge(self) -> None:
        """Has dead logs removed soon. To be called when deleted ledgers are out of the indexes."""
        self._wake.set()

    def force(self, force: ForcedRound) -> None:
        """Asks for a complete round at once (`PUT /api/v1/bookie/gc`). Requests before its start are joined."""
        older = self._force or ForcedRound()
        self._force = ForcedRound(*(one or other for one, other in zip(older, force, strict=True)))
        self.forced = True
        self._wake.set()

    @property
    def index_paths(self) -> list[Path]:
        """The directory of each location index, by ledger directory."""
        return [directory.usage.storage.locations.path for directory in self._directories]

    def compact_indexes(self, places: Iterable[int]) -> None:
        """Asks for a compaction of the location indexes at these places. `PUT .../entry_location_compact` calls it."""
        self._indexes_to_compact.update(places)
        self._wake.set()

    def is_compacting_index(self, place: int) -> bool:
        """Returns whether a location index's compaction runs or is asked for."""
        return place in self._indexes_to_compact or self.stats.directories[place].compacting_index

    def disks_changed(self, disks: DiskStates) -> None:
        """Takes over the free space of the ledger directories. It decides about their compactions."""
        for directory, disk in zip(self._directories, disks, strict=True):
            directory.disk = disk
        if self._settings.force_when_full and any(disk.almost_full for disk in disks):
            self.force(ForcedRound(minor=True, major=True))

    # The thread.

    def _run(self) -> None:
        while not self._closing.is_set():
            woken = self._wake.wait(max(self._next_s - time.monotonic(), 0))
            if self._closing.is_set():
                return
            # Cleared before the requests are read: one that arrives now wakes the thread again.
            self._wake.clear()
            force, self._force = self._force, None
            # Woken without a request: `nudge` wants dead logs removed and nothing else.
            complete = not woken or force is not None
            try:
                self._round(force or ForcedRound(), complete=complete)
            except Exception:  # whatever it was, the next round is to come
                log.exception("garbage collection failed, it goes on with the next round")
            # From the end of the round, or one longer than its interval would be followed by the next at once.
            if complete:
                self._next_s = time.monotonic() + self._settings.wait_s
            # A request that came during the round keeps `forced` true until its own round ends.
            if force is not None and self._force is None:
                self.forced = False

    def _round(self, force: ForcedRound, *, complete: bool) -> None:
        started = time.perf_counter_ns()
        if complete and self._metadata is not None:
            self._delete_missing(self._metadata)
        if complete and self._over_replicated is not None:
            self._over_replicated.remove_if_due()
        for directory in self._directories:
            self.stats.reclaimed_by_deletion += directory.usage.remove_dead(self._ledgers.living)
        for directory in self._directories:
            if complete:
                directory.compact_if_due(force)
            elif directory.lacks_space:
                # Ledgers were deleted since the disk became full, so logs may be mostly dead now.
                directory.compact_if_due(ForcedRound(minor=True, major=True))
        if complete:
            self._measure()
        self._compact_indexes()
        self.stats.rounds.observe_ns(True, time.perf_counter_ns() - started)

    def _delete_missing(self, metadata: ZooKeeperLedgers) -> None:
        """Deletes the ledgers that the metadata store lacks. Waits until they are out of the indexes."""
        # The own list is made before the store is asked: a new ledger is in the store before it has an entry here.
        known = sorted(self._ledgers.ids())
        try:
            gone = metadata.missing(known, verify=self._settings.verify)
        except (BookieError, OSError) as error:
            log.warning("no ledger is deleted in this round: %s", error)
            return
        if not gone:
            return
        log.info("%d of %d ledgers do not exist any more, they are deleted here too", len(gone), len(known))
        done = threading.Event()
        for start in range(0, len(gone), _DELETED_AT_A_TIME):
            last = start + _DELETED_AT_A_TIME >= len(gone)
            # Completions run in order, so the last one stands for all.
            self._ledgers.delete(gone[start : start + _DELETED_AT_A_TIME], done.set if last else _nothing)
        until = time.monotonic() + _CHECKPOINT_WAIT_S
        while not done.wait(0.05) and not self._closing.is_set() and time.monotonic() < until:
            pass

    def _compact_indexes(self) -> None:
        for place in sorted(self._indexes_to_compact):
            self._directories[place].compact_index()
            self._indexes_to_compact.discard(place)

    def _measure(self) -> None:
        """Counts the bytes of settled logs and of their living ledgers."""
        living = self._ledgers.living
        total = alive = 0.0
        for directory in self._directories:
            usage = directory.usage
            for log_id in usage.storage.settled_logs():
                size = usage.size_of(log_id)
                share = usage.share_alive(log_id, living)
                total += size
                alive += size if share is None else size * share
        self.stats.log_bytes, self.stats.alive_bytes = int(total), int(alive)

    def _pause(self) -> None:
        if not self._closing.is_set():
            time.sleep(_PAUSE_S)


def _nothing() -> None:
    """Does nothing: the completion of all but the last of many deletions."""
