"""The bookie's counters: plain integers and small summaries, changed where things happen.

Counting costs no clock read per entry: the journal measures a group, and every entry of the group counts with the
time of the oldest one, which is an upper bound. Each summary is written by one thread and read by the scrape without
a lock, so a scrape may miss the group that is being counted. `http.exposition` gives the values BookKeeper's names.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from foundation.units import NS_PER_MS

WINDOW = 1024
"""Number of newest observations that a summary computes quantiles from."""


class Summary:
    """Count and sum of all observations, quantiles of the last WINDOW ones."""

    def __init__(self) -> None:
        self.count = 0
        """Observations since the start."""
        self.sum = 0.0
        """Sum of all observed values, in the unit of the summary."""
        self._recent: deque[float] = deque(maxlen=WINDOW)

    def observe(self, value: float, times: int = 1) -> None:
        """Counts `times` equal observations. The quantiles see them as one, since they are one group."""
        self.count += times
        self.sum += value * times
        self._recent.append(value)

    def quantiles(self, wanted: tuple[float, ...]) -> list[float]:
        """Returns one value for each wanted quantile (0 to 1).

        The values are NaN without observations, as Prometheus clients do."""
        ordered = sorted(self._recent)
        if not ordered:
            return [float("nan")] * len(wanted)
        last = len(ordered) - 1
        return [ordered[min(last, int(quantile * len(ordered)))] for quantile in wanted]

    @classmethod
    def merged(cls, summaries: Sequence[Summary]) -> Summary:
        """Returns one summary of all.

        Its quantiles cover the newest observations of each. A single summary is returned itself; several give a new
        one.
        """
        if len(summaries) == 1:
            return summaries[0]
        whole = cls()
        whole._recent = deque(maxlen=WINDOW * len(summaries))
        for summary in summaries:
            whole.count += summary.count
            whole.sum += summary.sum
            whole._recent += summary._recent
        return whole


class OutcomeTimes:
    """Milliseconds of an operation, apart for success and failure."""

    def __init__(self) -> None:
        self.ok = Summary()
        """Exposed with the label success="true"."""
        self.failed = Summary()
        """Exposed with the label success="false"."""

    def observe_ns(self, ok: bool, elapsed_ns: int, times: int = 1) -> None:
        """Counts `times` operations that took `elapsed_ns` each."""
        (self.ok if ok else self.failed).observe(elapsed_ns / NS_PER_MS, times)


class JournalStats:
    """Counters of one journal, written by its thread."""

    def __init__(self) -> None:
        self.adds = OutcomeTimes()
        """Time per record, from its queueing to its group's sync."""
        self.bytes = 0
        """Bytes of records with their lengths, without padding."""
        self.failures = 0
        """Groups whose write or sync failed."""
        self.groups = Summary()
        """Records per group."""
        self.syncs = OutcomeTimes()
        """Time of a group's write and sync, which are one call."""

    def group(self, records: int, size: int, elapsed_ns: int) -> None:
        """Counts a durable group; `elapsed_ns` is the time of its oldest record."""
        self.bytes += size
        self.groups.observe(records)
        self.adds.ok.observe(elapsed_ns / NS_PER_MS, records)

    def failed(self, records: int) -> None:
        """Counts a group that was answered with an I/O error."""
        self.failures += 1
        self.adds.observe_ns(False, 0, records)

    def sync(self, elapsed_ns: int) -> None:
        """Counts one successful write and sync."""
        self.syncs.ok.observe(elapsed_ns / NS_PER_MS)


class DirectoryStats:
    """Compactions of one ledger directory. Times are seconds since 1970, at first the time of the start."""

    def __init__(self) -> None:
        self.compacting = ""
        """`minor` or `major` while the entry logs are compacted, else empty."""
        self.compacting_index = False
        """True while the location index is compacted."""
        self.minors = 0
        """Minor compactions that ended."""
        self.majors = 0
        """Major compactions that ended."""
        self.indexes = 0
        """Compactions of the location index that ended."""
        started_s = time.time()
        self.last_minor_s = started_s
        """End of the last minor compaction."""
        self.last_major_s = started_s
        """End of the last major compaction."""
        self.last_index_s = started_s
        """End of the last compaction of the location index."""


class CollectionStats:
    """Counters of garbage collection, written by its thread."""

    def __init__(self, directories: int) -> None:
        self.directories = [DirectoryStats() for _ in range(directories)]
        """One for each ledger directory, in the order of their configuration."""
        self.rounds = OutcomeTimes()
        """Time per round."""
        self.compactions = OutcomeTimes()
        """Time per compaction of a directory's entry logs, minor and major."""
        self.reclaimed_by_deletion = 0
        """Bytes of entry logs removed because all their ledgers were deleted."""
        self.reclaimed_by_compaction = 0
        """Bytes of entry logs that compactions freed."""
        self.log_bytes = 0
        """Bytes of all finished entry logs, as of the last timed round."""
        self.alive_bytes = 0
        """Bytes of existing ledgers in these logs, at the same time."""

    @property
    def majors(self) -> int:
        """Major compactions of all directories."""
        return sum(directory.majors for directory in self.directories)

    @property
    def minors(self) -> int:
        """Minor compactions of all directories."""
        return sum(directory.minors for directory in self.directories)

    @property
    def indexes(self) -> int:
        """Compactions of the location indexes of all directories."""
        return sum(directory.indexes for directory in self.directories)


class BookieStats:
    """All counters of one bookie. Bytes are those of whole entries, without framing, unless said."""

    def __init__(self, journals: int = 1, directories: int = 1) -> None:
        self.journals = [JournalStats() for _ in range(journals)]
        """One for each journal, in the order of their configuration."""
        self.adds_refused = 0
        """Adds that were refused before they reached a journal."""
        self.adds_held = 0
        """Adds that waited for a flush, as both write caches were full."""
        self.adds_rejected = 0
        """Held adds that were answered "too many requests" after dbStorage_maxThrottleTimeMs."""
        self.checkpoint_failures = 0
        """Attempts of a checkpoint that failed and were repeated."""
        self.checkpoints = 0
        """Checkpoints that ended."""
        self.collection = CollectionStats(directories)
        """Counters of garbage collection."""
        self.deleted_ledgers = 0
        """Ledgers that were deleted, and over-replicated ones whose entries were given up."""
        self.flush = Summary()
        """Milliseconds per checkpoint that wrote entries."""
        self.flush_entries = Summary()
        """Entries per checkpoint that wrote entries."""
        self.read_bytes = 0
        """Bytes of entries served."""
        self.read_cache_hits = 0
        """Entries served from the read cache. Includes those from a load that was started for an earlier entry."""
        self.read_cache_misses = 0
        """Entries that a load was started for, existing or not."""
        self.read_entries = OutcomeTimes()
        """Time per entry; entries from memory are counted without a time."""
        self.read_index_ns = 0
        """Time that loads spent in the location index."""
        self.read_logs_ns = 0
        """Time that loads spent in the entry logs."""
        self.read_requests = OutcomeTimes()
        """Time per request; a batch read is one request."""
        self.readahead_bytes = Summary()
        """Bytes per load, without the entry that it was started for."""
        self.readahead_entries = Summary()
        """Entries per load, without the one that it was started for. It is 0 when no entry follows."""
        self.readahead_ns = 0
        """Time of loads that brought more than one entry."""
        self.write_cache_hits = 0
        """Entries read from the write caches."""
        self.write_cache_misses = 0
        """Entries that were looked for elsewhere."""

    def served(self, entries: int, size: int, started_ns: int = 0) -> None:
        """Counts a read that is answered with `entries` entries. `started_ns` is 0 when memory was enough."""
        requests = 1
        if started_ns:
            elapsed_ns = time.perf_counter_ns() - started_ns
            self.read_entries.observe_ns(True, elapsed_ns)
            self.read_requests.observe_ns(True, elapsed_ns)
            # `observe_ns` has counted one entry and the request; the others of a batch count without a time.
            entries -= 1
            requests = 0
        self.read_bytes += size
        self.read_entries.ok.count += entries
        self.read_requests.ok.count += requests

    def refused(self) -> None:
        """Counts a read that ends with an error or "no entry"."""
        self.read_entries.failed.count += 1
        self.read_requests.failed.count += 1

    def load(self, entries: int, ahead_bytes: int, index_ns: int, logs_ns: int) -> None:
        """Counts a load that ended. `ahead_bytes` leaves out the entry that it was started for."""
        self.read_index_ns += index_ns
        self.read_logs_ns += logs_ns
        if entries > 1:
            self.readahead_ns += index_ns + logs_ns
        if entries:
            self.readahead_entries.observe(entries - 1)
            self.readahead_bytes.observe(ahead_bytes)

    def add_entries(self) -> OutcomeTimes:
        """Returns the times of all adds. Refused adds never reached a journal and count without a time."""
        whole = OutcomeTimes()
        whole.ok = Summary.merged([journal.adds.ok for journal in self.journals])
        whole.failed = Summary.merged([Summary(), *(journal.adds.failed for journal in self.journals)])
        whole.failed.count += self.adds_refused
        return whole

    @property
    def journal_bytes(self) -> int:
        """Bytes of records with their lengths, of all journals."""
        return sum(journal.bytes for journal in self.journals)
