"""EvictionStats: the cost of passes, the ages of removed entries, and if reads of them were still expected.

It listens to removals alone and splits them into runs once, for its own counts and for the `Decisions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from entry_cache.cache_stats import Reason
from entry_cache.observe.cache_events import REASONS
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.expectations import Expectations
from entry_cache.observe.pass_stats import PassStats
from entry_cache.policy import NO_LIMIT, Removed, Requeued
from entry_cache.range_cache import CachedLog
from entry_cache.runs import split_runs
from foundation.model.entry import Entry
from foundation.model.time_histogram import TimeHistogram

SLICE_BOUNDS_NS: Final = tuple(ms * 1_000_000 for ms in (1, 2, 5, 10, 20, 50, 100))
"""The buckets of the durations of slices."""


class EvictionStats:
    """A listener that counts removals of the whole cache and by log."""

    def __init__(self, decisions: Decisions, expectations: Expectations) -> None:
        """`decisions` are told of each removed run."""
        self._decisions = decisions
        self.expectations = expectations
        """Says for the policy in use which reads are still to come."""
        self.evicted_expected_entries = dict.fromkeys(Reason, 0)
        """By reason, the entries that were removed although reads of them were expected."""
        self.evicted_expected_bytes = dict.fromkeys(Reason, 0)
        """The bytes of these entries."""
        self.passes = {Reason.TTL: PassStats(), Reason.SIZE: PassStats()}
        """By reason, the cost of passes and the ages of what they removed."""
        self.slices = {trigger: TimeHistogram(SLICE_BOUNDS_NS) for trigger in ("periodic", "insert")}
        """By trigger, how long slices of passes held the loop. The owner measures it: it has the clock."""
        self._cache_of: dict[int, CachedLog] = {}
        """By ledger with cached entries, its cache."""
        self._by_log: dict[str, list[int]] = {}
        """By log, the removed entries by number of the reason."""

    def of_log(self, log: str) -> list[int]:
        """Returns the removed entries of an open log by number of the reason (`REASONS`)."""
        return self._by_log.get(log) or [0] * len(REASONS)

    def ledger_changed(self, cache: CachedLog, ledger_id: int, *, opened: bool) -> None:
        """Notes or forgets the cache of the ledger."""
        if opened:
            self._cache_of[ledger_id] = cache
        else:
            self._cache_of.pop(ledger_id, None)

    def cache_removed(self, cache: CachedLog) -> None:
        """Forgets the counts of the log."""
        self._by_log.pop(cache.name, None)

    def pass_ran(self, reason: Reason, removed: Removed, requeued: Requeued | None) -> None:
        """Counts visits, and the pass if it has ended; tells the decisions what was requeued."""
        stats = self.passes[reason]
        # A slice that was cut is part of the same pass, so only its end counts.
        stats.passes += removed.done
        stats.visits += removed.visits
        if requeued:
            self._decisions.requeued(requeued)

    def removed(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Counts the removed entries by runs, never one by one."""
        entries = removed.entries
        if self.expectations.by_position:
            flags: Iterable[bool] = self._expected_flags(entries, now_ns)
        else:  # As `_expected_flags`, at a third of the cost: this runs once for each entry that is ever cached.
            flags = [count > 0 if (count := entry.expected_reads) else False for entry in entries]
        runs = list(split_runs(entries, flags))
        # Invalidations belong to no pass, so they have neither cost nor ages.
        if reason in self.passes:
            self.passes[reason].removed(entries, [run[2] for run in runs], now_ns)
        number = REASONS.index(reason)
        for ledger_id, _, count, size_bytes, expected in runs:
            # A ledger whose last entry an earlier event removed may be unknown by now; the total counts it all
            # the same.
            cache = self._cache_of.get(ledger_id)
            if cache is not None:
                self._by_log.setdefault(cache.name, [0] * len(REASONS))[number] += count
            if expected:
                self.evicted_expected_entries[reason] += count
                self.evicted_expected_bytes[reason] += size_bytes
        self._decisions.evicted(runs, number)

    def _expected_flags(self, entries: list[Entry], now_ns: int) -> Iterator[bool]:
        """Yields True for each removed entry that reads were expected of: by its count, or by a cursor before it."""
        ledger_id = -1
        from_id = NO_LIMIT
        for entry in entries:
            # Entries of one ledger stand together, so the cursors are asked once for each run of them.
            if entry.ledger_id != ledger_id:
                ledger_id = entry.ledger_id
                from_id = self._expected_from(ledger_id, now_ns)
            count = entry.expected_reads
            yield (count is not None and count > 0) or entry.entry_id >= from_id

    def _expected_from(self, ledger_id: int, now_ns: int) -> int:
        cache = self._cache_of.get(ledger_id)
        if cache is None:
            return NO_LIMIT
        # Replays call it at the same events as the broker did, which keeps views of `magnetar` equal in both.
        self.expectations.forget_overdue(cache, now_ns)
        return self.expectations.expected_from(cache, ledger_id, now_ns)
