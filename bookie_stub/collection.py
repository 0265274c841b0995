"""Garbage collection as it goes on beside everything else: one thread, one round after the other.

A round asks the metadata store which ledgers are gone, removes the logs that hold nothing alive, and compacts mostly
dead ones when that is due. It runs every `gcWaitTime`, after a checkpoint that took deleted ledgers out of the
indexes, and when somebody asks for it. Nothing is deleted on an error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from bookie_stub.compaction import CompactionStopped, Pace, compact_log
from bookie_stub.config import CollectionSettings
from bookie_stub.entry_log import file_name
from bookie_stub.errors import BookieError
from bookie_stub.garbage_collector import GarbageCollector
from bookie_stub.ledger_storage import Storages
from bookie_stub.metrics import CollectionStats
from bookie_stub.posting import Answer, Post, post_quietly

log = logging.getLogger(__name__)

_BREATH_S = 0.0002
_DELETED_AT_A_TIME = 500
"""Ledgers that the loop deletes in one go: about two milliseconds."""
_CHECKPOINT_WAIT_S = 30.0


class LedgerMetadata(Protocol):
    """What the cluster knows of ledgers."""

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        """Those of them (ascending) that do not exist any more. With `verify` each one was asked for by name.

        Raises BookieError when anything is in doubt.
        """
        ...

    def naming(self, bookie_id: str) -> list[int]:
        """All ledgers that have, or had for a part of them, this bookie in their ensemble. Raises BookieError."""
        ...


class KnownLedgers:
    """The bookie's ledgers, as the thread sees them from outside of the loop."""

    def __init__(
        self,
        ledgers: Mapping[int, object],
        hidden: Container[int],
        post: Post,
        delete: Callable[[Sequence[int], Answer], None],
    ) -> None:
        """`hidden`: deleted, and not yet out of the indexes. `delete` runs in the loop."""
        self._ledgers = ledgers
        self._hidden = hidden
        self._post = post
        self._delete = delete

    def ids(self) -> list[int]:
        return sorted(list(self._ledgers))  # noqa: C414 - the copy is made in one step, the loop goes on adding

    def living(self, ledger_id: int) -> bool:
        """Whether an entry log is still needed for the ledger."""
        return ledger_id in self._ledgers or ledger_id in self._hidden

    def delete(self, ledger_ids: Sequence[int], done: Answer) -> None:
        """`done` when a checkpoint has taken them out of the indexes."""
        post_quietly(self._post, partial(self._delete, ledger_ids, done))


class Force(NamedTuple):
    """Somebody asks for a round, and for compactions although they are not due."""

    minor: bool = False
    major: bool = False


class Collection:
    def __init__(
        self,
        storages: Storages,
        ledgers: KnownLedgers,
        settings: CollectionSettings,
        metadata: LedgerMetadata | None,
        stats: CollectionStats,
    ) -> None:
        """Without `metadata` ledgers are deleted by call only."""
        self._collectors = [GarbageCollector(storage, self._breathe) for storage in storages.all]
        self._ledgers = ledgers
        self._settings = settings
        self._metadata = metadata
        self.stats = stats
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._force: Force | None = None
        self.forced = False
        """A round that somebody asked for is due or under way."""
        self.suspended_major = self.suspended_minor = False
        """The disk has no room for it."""
        self._next_s = time.monotonic() + settings.wait_s
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

    def force(self, force: Force) -> None:
        """A round at once. A second call while one is due adds to it."""
        older = self._force or Force()
        self._force = Force(older.minor or force.minor, older.major or force.major)
        self.forced = True
        self._wake.set()

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
                self._round(force or Force(), ask=ask)
            except Exception:  # whatever it was, the next round is to come
                log.exception("garbage collection failed, it goes on with the next round")
            if ask:
                self._next_s = time.monotonic() + self._settings.wait_s
            if force is not None and self._force is None:
                self.forced = False

    def _round(self, force: Force, *, ask: bool) -> None:
        started = time.perf_counter_ns()
        if ask and self._metadata is not None:
            self._ask_metadata(self._metadata)
        for collector in self._collectors:
            self.stats.reclaimed_by_deletion += collector.remove_dead(self._ledgers.living)
        if ask:
            self._compact_if_due(force)
            self._measure()
        self.stats.rounds.observe_ns(True, time.perf_counter_ns() - started)

    def _ask_metadata(self, metadata: LedgerMetadata) -> None:
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

    # Compaction.

    def _compact_if_due(self, force: Force) -> None:
        settings, stats = self._settings, self.stats
        now = time.time()
        major_due = now - stats.last_major_s >= settings.major_interval_s
        minor_due = now - stats.last_minor_s >= settings.minor_interval_s
        if settings.major and (force.major or (major_due and not self.suspended_major)):
            stats.compacting = "major"
            self._compact(settings.major_threshold)
            stats.majors += 1
            stats.last_major_s = stats.last_minor_s = time.time()
        elif settings.minor and (force.minor or (minor_due and not self.suspended_minor)):
            stats.compacting = "minor"
            self._compact(settings.minor_threshold)
            stats.minors += 1
            stats.last_minor_s = time.time()
        stats.compacting = ""

    def _compact(self, threshold: float) -> None:
        started = time.perf_counter_ns()
        try:
            for collector in self._collectors:
                self._compact_directory(collector, threshold)
        except CompactionStopped as stopped:
            log.info("%s", stopped)
        self.stats.compactions.observe_ns(True, time.perf_counter_ns() - started)

    def _compact_directory(self, collector: GarbageCollector, threshold: float) -> None:
        pace = Pace(self._settings.rate, self._closing)
        by_bytes = self._settings.rate_in_bytes

        def take(size: int) -> None:
            pace.take(size if by_bytes else 1)

        for log_id in collector.mostly_dead(threshold, self._ledgers.living):
            try:
                freed = compact_log(collector.storage, log_id, self._ledgers.living, take, pace.breathe)
            except CompactionStopped:
                raise
            except (BookieError, OSError) as error:
                log.warning("%s is not compacted: %s", file_name(log_id), error)
                if isinstance(error, BookieError):
                    collector.give_up(log_id)
            else:
                collector.forget(log_id)
                self.stats.reclaimed_by_compaction += max(freed, 0)
                log.info("%s compacted, %d bytes freed", file_name(log_id), freed)

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

    def _breathe(self) -> None:
        if not self._closing.is_set():
            time.sleep(_BREATH_S)


def _nothing() -> None:
    """For all but the last of many deletions."""
