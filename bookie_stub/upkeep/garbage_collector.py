"""Garbage collection as it goes on beside everything else: one thread, one round after the other.

A round asks the metadata store which ledgers are gone, removes the logs that hold nothing alive, and compacts mostly
dead ones when that is due. It runs every `gcWaitTime`, after a checkpoint that took deleted ledgers out of the
indexes, and when somebody asks for it. Nothing is deleted on an error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from bookie_stub.base.errors import BookieError
from bookie_stub.base.metrics import CollectionStats
from bookie_stub.base.posting import Answer, Post, post_quietly
from bookie_stub.cluster.cluster_ledgers import ClusterLedgers
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.ledger_storage import Storages
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.upkeep.directory_compactions import DirectoryCompactions, ForcedRound
from bookie_stub.upkeep.disk_monitor import DiskStates
from bookie_stub.upkeep.log_usage import LogUsage
from bookie_stub.upkeep.over_replicated import OverReplicated

log = logging.getLogger(__name__)

_PAUSE_S = 0.0002
_DELETED_AT_A_TIME = 500
"""Ledgers that the loop deletes in one go: about two milliseconds."""
_CHECKPOINT_WAIT_S = 30.0


class Removal(Protocol):
    """What the loop does with ledgers that go; the call comes back when they are out of the indexes."""

    def delete_all(self, ledger_ids: Sequence[int], done: Answer) -> None: ...

    def empty_all(self, ledger_ids: Sequence[int], done: Answer) -> None: ...


class KnownLedgers:
    """The bookie's ledgers, as the thread sees them from outside of the loop."""

    def __init__(
        self,
        ledgers: Mapping[int, Ledger],
        hidden: Container[int],
        post: Post,
        removal: Removal,
    ) -> None:
        """`hidden`: deleted or emptied, and not yet out of the indexes. `removal` works in the loop."""
        self._ledgers = ledgers
        self._hidden = hidden
        self._post = post
        self._removal = removal

    def ids(self) -> list[int]:
        return sorted(list(self._ledgers))  # noqa: C414 - the copy is made in one step, the loop goes on adding

    def with_entries(self) -> list[int]:
        """Those that may have some here."""
        return [ledger_id for ledger_id in self.ids() if self._needs_logs(ledger_id)]

    def living(self, ledger_id: int) -> bool:
        """Whether an entry log is still needed for the ledger."""
        return ledger_id in self._hidden or self._needs_logs(ledger_id)

    def _needs_logs(self, ledger_id: int) -> bool:
        ledger = self._ledgers.get(ledger_id)
        return ledger is not None and ledger.needs_logs

    def delete(self, ledger_ids: Sequence[int], done: Answer) -> None:
        """`done` when a checkpoint has taken them out of the indexes."""
        post_quietly(self._post, partial(self._removal.delete_all, ledger_ids, done))

    def empty(self, ledger_ids: Sequence[int], done: Answer) -> None:
        """Their entries only; `done` as for `delete`."""
        post_quietly(self._post, partial(self._removal.empty_all, ledger_ids, done))


class GarbageCollectorThread:
    def __init__(
        self,
        storages: Storages,
        ledgers: KnownLedgers,
        settings: BookieSettings,
        metadata: ClusterLedgers | None,
        stats: CollectionStats,
    ) -> None:
        """Without `metadata` ledgers are deleted by call only."""
        its = settings.collection
        self._closing = threading.Event()
        self._directories = [
            DirectoryCompactions(
                LogUsage(storage, self._pause, settings.entry_log_bytes_max if its.by_whole_logs else 1),
                ledgers.living,
                its,
                stats,
                its_stats,
                self._closing,
            )
            for storage, its_stats in zip(storages.all, stats.directories, strict=True)
        ]
        self._collectors = [directory.collector for directory in self._directories]
        self._ledgers = ledgers
        self._settings = its
        self._metadata = metadata
        self._over_replicated = None
        if metadata is not None:
            self._over_replicated = OverReplicated(
                metadata,
                settings.bookie_id,
                ledgers.with_entries,
                ledgers.empty,
                wait_s=its.over_replicated_wait_s,
                rate=its.metadata_rate,
                closing=self._closing,
            )
        self.stats = stats
        self._wake = threading.Event()
        self._force: ForcedRound | None = None
        self.forced = False
        """A round that somebody asked for is due or under way."""
        self._indexes: set[int] = set()
        """Directories whose location index somebody wants compacted."""
        self._next_s = time.monotonic() + its.wait_s
        self._thread = threading.Thread(target=self._run, name="bookie-gc", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """A compaction that is copying is given up; one that changes the index comes to its end."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def nudge(self) -> None:
        """Ledgers are gone from the indexes: look for logs to remove soon."""
        self._wake.set()

    def force(self, force: ForcedRound) -> None:
        """A round at once. A second call while one is due adds to it."""
        older = self._force or ForcedRound()
        self._force = ForcedRound(*(one or other for one, other in zip(older, force, strict=True)))
        self.forced = True
        self._wake.set()

    @property
    def index_paths(self) -> list[Path]:
        """The location indexes, one for each ledger directory."""
        return [collector.storage.locations.path for collector in self._collectors]

    def compact_indexes(self, places: Iterable[int]) -> None:
        """The location indexes of these ledger directories, soon."""
        self._indexes.update(places)
        self._wake.set()

    def is_compacting_index(self, place: int) -> bool:
        """Whether it is asked for or under way."""
        return place in self._indexes or self.stats.directories[place].compacting_index

    def disks_changed(self, rooms: DiskStates) -> None:
        """What the ledger directories have room for."""
        for directory, room in zip(self._directories, rooms, strict=True):
            directory.room = room
        if self._settings.force_when_full and any(room.almost_full for room in rooms):
            self.force(ForcedRound(minor=True, major=True))

    # The thread.

    def _run(self) -> None:
        while not self._closing.is_set():
            woken = self._wake.wait(max(self._next_s - time.monotonic(), 0))
            if self._closing.is_set():
                return
            self._wake.clear()
            force, self._force = self._force, None
            ask = not woken or force is not None
            try:
                self._round(force or ForcedRound(), ask=ask)
            except Exception:  # whatever it was, the next round is to come
                log.exception("garbage collection failed, it goes on with the next round")
            if ask:
                self._next_s = time.monotonic() + self._settings.wait_s
            if force is not None and self._force is None:
                self.forced = False

    def _round(self, force: ForcedRound, *, ask: bool) -> None:
        started = time.perf_counter_ns()
        if ask and self._metadata is not None:
            self._ask_metadata(self._metadata)
        if ask and self._over_replicated is not None:
            self._over_replicated.look_if_due()
        for collector in self._collectors:
            self.stats.reclaimed_by_deletion += collector.remove_dead(self._ledgers.living)
        if ask:
            for directory in self._directories:
                directory.compact_if_due(force)
            self._measure()
        self._compact_wanted_indexes()
        self.stats.rounds.observe_ns(True, time.perf_counter_ns() - started)

    def _ask_metadata(self, metadata: ClusterLedgers) -> None:
        known = sorted(
            self._ledgers.ids()
        )  # before the store is asked: a new ledger is in the store before it is here
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
            self._ledgers.delete(gone[start : start + _DELETED_AT_A_TIME], done.set if last else _nothing)
        waited_until = time.monotonic() + _CHECKPOINT_WAIT_S
        while not done.wait(0.05) and not self._closing.is_set() and time.monotonic() < waited_until:
            pass

    def _compact_wanted_indexes(self) -> None:
        for place in sorted(self._indexes):
            self._directories[place].compact_index()
            self._indexes.discard(place)

    def _measure(self) -> None:
        """How much of the logs is alive, for the scrape."""
        living = self._ledgers.living
        total = alive = 0.0
        for collector in self._collectors:
            for log_id in collector.storage.settled_logs():
                size = collector.size_of(log_id)
                share = collector.share_alive(log_id, living)
                total += size
                alive += size if share is None else size * share
        self.stats.log_bytes, self.stats.alive_bytes = int(total), int(alive)

    def _pause(self) -> None:
        if not self._closing.is_set():
            time.sleep(_PAUSE_S)


def _nothing() -> None:
    """For all but the last of many deletions."""
