"""DirectoryCompactions: compacts a ledger directory when that is due.

It compacts entry logs and the location index.

A minor compaction takes logs with little alive, a major one takes more logs and counts as a minor one too. Both write
before they free anything, so low free space on the disk puts them off, unless a request says otherwise.

Used by the thread of garbage collection alone.
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
from bookie_stub.upkeep.compaction import EntryLogCompactor
from bookie_stub.upkeep.disk_monitor import DiskState
from bookie_stub.upkeep.log_usage import Living, LogUsage
from bookie_stub.upkeep.throttler import CompactionStopped, Throttler

log = logging.getLogger(__name__)


class ForcedRound(NamedTuple):
    """A request for a round of garbage collection at once. It may include compactions that are not due."""

    minor: bool = False
    """Run a minor compaction."""
    major: bool = False
    """Run a major compaction."""
    without_free_space: bool = False
    """Run them on a disk that is too full for them too."""


class DirectoryCompactions:
    """The compactions of one ledger directory."""

    def __init__(
        self,
        usage: LogUsage,
        living: Living,
        settings: CollectionSettings,
        totals: CollectionStats,
        stats: DirectoryStats,
        closing: threading.Event,
    ) -> None:
        """`totals` counts for all directories, `stats` for this one.

        `closing` gives up a compaction that is copying.
        """
        self.usage = usage
        """The living share of each log of the directory."""
        self.disk = DiskState()
        """The free space of the directory's disks; written by the loop's thread."""
        self.stats = stats
        """Counters and times of this directory's compactions."""
        self._living = living
        self._settings = settings
        self._totals = totals
        self._closing = closing
        # On the monotonic clock, beside the times of the day in `stats` that administrators read: a clock that is set
        # back a day would put compactions off for a day, and one that is set forward would start all of them at once.
        self._last_minor_s = self._last_major_s = self._last_index_s = time.monotonic()
        self._index_delay_s = self._next_index_delay_s()

    @property
    def lacks_space(self) -> bool:
        """True when dead entries must leave at once (`isForceGCAllowWhenNoSpace`)."""
        return self.disk.almost_full and self._settings.force_when_full

    def compact_if_due(self, force: ForcedRound) -> None:
        """Runs the compactions that are due, or that `force` asks for."""
        now = time.monotonic()
        if self._wants_major(force, now):
            self._compact_logs("major", self._settings.major_threshold, self._settings.major_time_s_max)
            self.stats.majors += 1
            # A major compaction has taken the logs of a minor one too.
            self.stats.last_major_s = self.stats.last_minor_s = time.time()
            self._last_major_s = self._last_minor_s = time.monotonic()
        elif self._wants_minor(force, now):
            self._compact_logs("minor", self._settings.minor_threshold, self._settings.minor_time_s_max)
            self.stats.minors += 1
            self.stats.last_minor_s = time.time()
            self._last_minor_s = time.monotonic()
        if self._wants_index(now):
            self.compact_index()

    def _wants_major(self, force: ForcedRound, now: float) -> bool:
        settings = self._settings
        if force.major and settings.major_by_force:
            return self._may_write(too_full=self.disk.almost_full, force=force)
        due = now - self._last_major_s >= settings.major_interval_s
        return settings.major and due and self._may_write(too_full=self.disk.almost_full, force=ForcedRound())

    def _wants_minor(self, force: ForcedRound, now: float) -> bool:
        settings = self._settings
        if force.minor and settings.minor_by_force:
            return self._may_write(too_full=self.disk.full, force=force)
        due = now - self._last_minor_s >= settings.minor_interval_s
        return settings.minor and due and self._may_write(too_full=self.disk.full, force=ForcedRound())

    def _may_write(self, *, too_full: bool, force: ForcedRound) -> bool:
        return not too_full or force.without_free_space or self._settings.force_when_full

    def _wants_index(self, now: float) -> bool:
        interval_s = self._settings.index_interval_s
        due = now - self._last_index_s > interval_s + self._index_delay_s
        return interval_s > 0 and due and not self.disk.full

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
        settings, storage = self._settings, self.usage.storage
        # BookKeeper too begins a new log on such a disk, though not before the next add.
        if self.disk.almost_full:
            self.usage.finish_mostly_dead(threshold, self._living)
        throttler = Throttler(settings.rate, self._closing, in_bytes=settings.rate_in_bytes)
        compactor = EntryLogCompactor(storage, self._living, throttler.acquire, throttler.pause)
        until = time.monotonic() + time_s_max if time_s_max > 0 else float("inf")
        for log_id in self.usage.mostly_dead(threshold, self._living):
            if time.monotonic() > until:
                log.info("compaction of %s ends after %g s", storage.directory, time_s_max)
                return
            try:
                freed = compactor.compact(log_id)
            except CompactionStopped:
                raise
            except (BookieError, OSError) as error:
                log.warning("%s is not compacted: %s", storage.directory / file_name(log_id), error)
                # A damaged log would fail in every round. A disk that is full or broken may work in the next one.
                if isinstance(error, BookieError):
                    self.usage.give_up(log_id)
            else:
                self.usage.forget(log_id)
                self._totals.reclaimed_by_compaction += max(freed, 0)
                log.info("%s compacted, %d bytes freed", file_name(log_id), freed)

    # The location index.

    def compact_index(self) -> None:
        """Rewrites the location index without the rows of deleted ledgers. Reads and writes go on beside it."""
        locations = self.usage.storage.locations
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
        self._last_index_s = time.monotonic()
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
        """Returns a random delay, as at BookKeeper.

        Without it all bookies of a cluster would compact at the same time.
        """
        return random.uniform(0, max(self._settings.index_interval_s, 0))
