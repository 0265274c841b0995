"""What the bookie counts: plain integers and small summaries, changed where the thing happens.

Counting is by group, never by a clock read per entry: an entry's journal latency is its group's, measured
from the oldest entry of the group, hence an upper bound. A summary is written by one thread at a time and
read by the scrape without a lock; a scrape may miss the group that is just being counted.
"""

from __future__ import annotations

import time

WINDOW = 1024
"""Observations that a summary's quantiles are taken from: the newest ones."""
_NS_PER_MS = 1e6


class Summary:
    """Count, sum, and quantiles of the last WINDOW observations."""

    __slots__ = ("_next", "_recent", "count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._recent: list[float] = []
        self._next = 0

    def observe(self, value: float, times: int = 1) -> None:
        """`times` equal observations; in the quantiles they count once, as one group."""
        self.count += times
        self.sum += value * times
        if len(self._recent) < WINDOW:
            self._recent.append(value)
        else:
            self._recent[self._next] = value
            self._next = (self._next + 1) % WINDOW

    def quantiles(self, wanted: tuple[float, ...]) -> list[float]:
        """NaN where nothing was observed, as Prometheus clients do."""
        ordered = sorted(self._recent)
        if not ordered:
            return [float("nan")] * len(wanted)
        last = len(ordered) - 1
        return [ordered[min(last, int(quantile * len(ordered)))] for quantile in wanted]


class Outcome:
    """Two summaries: label success="true" and "false". Values are milliseconds."""

    __slots__ = ("failed", "ok")

    def __init__(self) -> None:
        self.ok = Summary()
        self.failed = Summary()

    def observe_ns(self, ok: bool, elapsed_ns: int, times: int = 1) -> None:
        (self.ok if ok else self.failed).observe(elapsed_ns / _NS_PER_MS, times)


class BookieStats:
    """All counters of one bookie. Bytes are of whole entries, without framing, unless said."""

    __slots__ = (
        "add_entries",
        "adds_held",
        "adds_rejected",
        "checkpoint_failures",
        "checkpoints",
        "deleted_ledgers",
        "flush",
        "flush_entries",
        "journal_adds",
        "journal_bytes",
        "journal_failures",
        "journal_groups",
        "journal_syncs",
        "read_bytes",
        "read_cache_hits",
        "read_cache_misses",
        "read_entries",
        "read_index_ns",
        "read_logs_ns",
        "read_requests",
        "readahead_bytes",
        "readahead_entries",
        "readahead_ns",
        "reclaimed_bytes",
        "write_cache_hits",
        "write_cache_misses",
    )

    def __init__(self) -> None:
        self.add_entries = Outcome()
        self.adds_held = 0
        """Adds that had to wait for a flush because both halves of the write cache were full."""
        self.adds_rejected = 0
        """Held adds that were answered "too many requests" after dbStorage_maxThrottleTimeMs."""
        self.checkpoint_failures = 0
        self.checkpoints = 0
        self.deleted_ledgers = 0
        self.flush = Summary()
        """Milliseconds per checkpoint that wrote entries."""
        self.flush_entries = Summary()
        self.journal_adds = Outcome()
        self.journal_bytes = 0
        """Records with their lengths, without padding."""
        self.journal_failures = 0
        self.journal_groups = Summary()
        """Records per group."""
        self.journal_syncs = Outcome()
        self.read_bytes = 0
        self.read_cache_hits = 0
        """Entries served from the read cache, or by the load of one before them."""
        self.read_cache_misses = 0
        """Entries that a load was started for, whether they exist or not."""
        self.read_entries = Outcome()
        """Per entry; those from memory are counted without a time."""
        self.read_index_ns = 0
        self.read_logs_ns = 0
        self.read_requests = Outcome()
        """Per request, one for a whole batch."""
        self.readahead_bytes = Summary()
        """Bytes per load besides the entry that it was for."""
        self.readahead_entries = Summary()
        """Entries per load besides the one that it was for; 0 where nothing follows."""
        self.readahead_ns = 0
        """Spent in loads that brought more than the entry that they were for."""
        self.reclaimed_bytes = 0
        """Size of entry logs removed because all their ledgers were deleted."""
        self.write_cache_hits = 0
        self.write_cache_misses = 0

    def served(self, entries: int, size: int, started_ns: int = 0) -> None:
        """A read that is answered with `entries`; `started_ns` 0 if memory was enough."""
        requests = 1
        if started_ns:
            elapsed_ns = time.perf_counter_ns() - started_ns
            self.read_entries.observe_ns(True, elapsed_ns)
            self.read_requests.observe_ns(True, elapsed_ns)
            entries -= 1
            requests = 0
        self.read_bytes += size
        self.read_entries.ok.count += entries
        self.read_requests.ok.count += requests

    def refused(self) -> None:
        """A read that is answered with an error or with "no entry"."""
        self.read_entries.failed.count += 1
        self.read_requests.failed.count += 1

    def load(self, entries: int, ahead_bytes: int, index_ns: int, logs_ns: int) -> None:
        """A load that has ended; `ahead_bytes` are those besides the entry that it was for."""
        self.read_index_ns += index_ns
        self.read_logs_ns += logs_ns
        if entries > 1:
            self.readahead_ns += index_ns + logs_ns
        if entries:
            self.readahead_entries.observe(entries - 1)
            self.readahead_bytes.observe(ahead_bytes)

    def journal_group(self, records: int, size: int, elapsed_ns: int) -> None:
        self.journal_bytes += size
        self.journal_groups.observe(records)
        self.journal_adds.observe_ns(True, elapsed_ns, records)
        self.add_entries.observe_ns(True, elapsed_ns, records)

    def journal_failed(self, records: int) -> None:
        self.journal_failures += 1
        self.journal_adds.observe_ns(False, 0, records)
        self.add_entries.observe_ns(False, 0, records)

    def journal_sync(self, elapsed_ns: int) -> None:
        self.journal_syncs.observe_ns(True, elapsed_ns)
