"""When a ledger directory is compacted, its entry logs and its location index, and doing it.

A major compaction takes more logs than a minor one and counts as one. Both need room before they give any, so a disk
without it holds them back, unless somebody asks for them all the same. Used by the garbage collection's thread alone.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import NamedTuple

from bookie_stub.base.errors import BookieError
from bookie_stub.base.metrics import CollectionStats, DirectoryStats
from bookie_stub.config.settings import CollectionSettings
from bookie_stub.disk.entry_log import file_name
from bookie_stub.upkeep.compaction import CompactionStopped, Throttler, compact_log
from bookie_stub.upkeep.disk_monitor import DiskState
from bookie_stub.upkeep.log_usage import Living, LogUsage

log = logging.getLogger(__name__)


class ForcedRound(NamedTuple):
    """Somebody asks for a round, and for compactions although they are not due."""

    minor: bool = False
    major: bool = False
    without_free_space: bool = False
    """Also where the disk has no room for them."""


class DirectoryCompactions:
    def __init__(
        self,
        collector: LogUsage,
        living: Living,
        settings: CollectionSettings,
        stats: CollectionStats,
        its_stats: DirectoryStats,
        closing: threading.Event,
    ) -> None:
        """`closing` gives up a compaction that is copying."""
        self.collector = collector
        self.room = DiskState()
        self.stats = its_stats
        self._living = living
        self._settings = settings
        self._totals = stats
        self._closing = closing
        self._index_delay_s = self._next_index_delay_s()

    def compact_if_due(self, force: ForcedRound) -> None:
        now = time.time()
        if self._wants_major(force, now):
            self._compact_logs("major", self._settings.major_threshold, self._settings.major_time_s_max)
            self.stats.majors += 1
            self.stats.last_major_s = self.stats.last_minor_s = time.time()
        elif self._wants_minor(force, now):
            self._compact_logs("minor", self._settings.minor_threshold, self._settings.minor_time_s_max)
            self.stats.minors += 1
            self.stats.last_minor_s = time.time()
        if self._wants_index(now):
            self.compact_index()

    def _wants_major(self, force: ForcedRound, now: float) -> bool:
        settings = self._settings
        if force.major and settings.major_by_force:
            return self._has_room(almost_full=self.room.almost_full, force=force)
        due = now - self.stats.last_major_s >= settings.major_interval_s
        return (
            settings.major and due and self._has_room(almost_full=self.room.almost_full, force=ForcedRound())
        )

    def _wants_minor(self, force: ForcedRound, now: float) -> bool:
        settings = self._settings
        if force.minor and settings.minor_by_force:
            return self._has_room(almost_full=self.room.full, force=force)
        due = now - self.stats.last_minor_s >= settings.minor_interval_s
        return settings.minor and due and self._has_room(almost_full=self.room.full, force=ForcedRound())

    def _has_room(self, *, almost_full: bool, force: ForcedRound) -> bool:
        return not almost_full or force.without_free_space or self._settings.force_when_full

    def _wants_index(self, now: float) -> bool:
        interval_s = self._settings.index_interval_s
        due = now - self.stats.last_index_s > interval_s + self._index_delay_s
        return interval_s > 0 and due and not self.room.full

    # Entry logs.

    def _compact_logs(self, kind: str, threshold: float, time_s_max: float) -> None:
        started = time.perf_counter_ns()
        self.stats.compacting = kind
        try:
            self._compact_mostly_dead(threshold, time_s_max)
        except CompactionStopped as stopped:
            log.info("%s", stopped)
        finally:
            self.stats.compacting = ""
        self._totals.compactions.observe_ns(True, time.perf_counter_ns() - started)

    def _compact_mostly_dead(self, threshold: float, time_s_max: float) -> None:
        settings, collector = self._settings, self.collector
        pace = Throttler(settings.rate, self._closing)

        def take(size: int) -> None:
            pace.take(size if settings.rate_in_bytes else 1)

        until = time.monotonic() + time_s_max if time_s_max > 0 else float("inf")
        for log_id in collector.mostly_dead(threshold, self._living):
            if time.monotonic() > until:
                log.info("compaction of %s ends after %g s", collector.storage.directory, time_s_max)
                return
            try:
                freed = compact_log(collector.storage, log_id, self._living, take, pace.pause)
            except CompactionStopped:
                raise
            except (BookieError, OSError) as error:
                log.warning("%s is not compacted: %s", file_name(log_id), error)
                if isinstance(error, BookieError):
                    collector.give_up(log_id)
            else:
                collector.forget(log_id)
                self._totals.reclaimed_by_compaction += max(freed, 0)
                log.info("%s compacted, %d bytes freed", file_name(log_id), freed)

    # The location index.

    def compact_index(self) -> None:
        """Rows of deleted ledgers leave the files. Reads and writes go on beside it."""
        locations = self.collector.storage.locations
        started = time.monotonic()
        before = locations.bytes_on_disk()
        self.stats.compacting_index = True
        try:
            locations.compact()
        except BookieError as error:
            log.warning("the location index is not compacted: %s", error)
            return
        finally:
            self.stats.compacting_index = False
        self.stats.indexes += 1
        self.stats.last_index_s = time.time()
        self._index_delay_s = self._next_index_delay_s()
        after = locations.bytes_on_disk()
        log.info(
            "%s compacted in %.1f s: %d bytes instead of %d",
            locations.path,
            time.monotonic() - started,
            after,
            before,
        )

    def _next_index_delay_s(self) -> float:
        """As at BookKeeper, so that the bookies of a cluster and their directories do not all do it at once."""
        return random.uniform(0, max(self._settings.index_interval_s, 0))
