"""What the bookie counts: plain integers and small summaries, changed where the thing happens.

Counting is by group, never by a clock read per entry: an entry's journal latency is its group's, measured
from the oldest entry of the group, hence an upper bound. A summary is written by one thread at a time and
read by the scrape without a lock; a scrape may miss the group that is just being counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

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


def merged(summaries: Sequence[Summary]) -> Summary:
    """One summary of all; the quantiles are of the newest observations of each."""
    if len(summaries) == 1:
        return summaries[0]
    whole = Summary()
    for summary in summaries:
        whole.count += summary.count
        whole.sum += summary.sum
        whole._recent += summary._recent
    return whole


class JournalStats:
    """Counted by one journal's thread."""

    __slots__ = ("adds", "bytes", "failures", "groups", "syncs")

    def __init__(self) -> None:
        self.adds = Outcome()
        """Per record, from its queueing to its group's sync."""
        self.bytes = 0
        """Records with their lengths, without padding."""
        self.failures = 0
        self.groups = Summary()
        """Records per group."""
        self.syncs = Outcome()

    def group(self, records: int, size: int, elapsed_ns: int) -> None:
        self.bytes += size
        self.groups.observe(records)
        self.adds.observe_ns(True, elapsed_ns, records)

    def failed(self, records: int) -> None:
        self.failures += 1
        self.adds.observe_ns(False, 0, records)

    def sync(self, elapsed_ns: int) -> None:
        self.syncs.observe_ns(True, elapsed_ns)


class DirectoryStats:
    """Of the compactions of one ledger directory. Times are seconds since 1970, from the start on."""

    __slots__ = (
        "compacting",
        "compacting_index",
        "indexes",
        "last_index_s",
        "last_major_s",
        "last_minor_s",
        "majors",
        "minors",
    )

    def __init__(self) -> None:
        self.compacting = ""
        """`minor` or `major` while one is running."""
        self.compacting_index = False
        self.minors = self.majors = self.indexes = 0
        self.last_minor_s = self.last_major_s = self.last_index_s = time.time()


class CollectionStats:
    """Counted by the garbage collection's thread."""

    __slots__ = (
        "alive_bytes",
        "compactions",
        "directories",
        "log_bytes",
        "reclaimed_by_compaction",
        "reclaimed_by_deletion",
        "rounds",
    )

    def __init__(self, directories: int) -> None:
        self.directories = [DirectoryStats() for _ in range(directories)]
        """Of each ledger directory."""
        self.rounds = Outcome()
        """Milliseconds per round."""
        self.compactions = Outcome()
        """Milliseconds per compaction of a directory's logs, minor and major."""
        self.reclaimed_by_deletion = self.reclaimed_by_compaction = 0
        """Bytes of logs that were removed because nothing in them was alive; that a compaction freed."""
        self.log_bytes = self.alive_bytes = 0
        """Of all finished logs and of what is alive in them, as of the last round."""

    @property
    def majors(self) -> int:
        return sum(directory.majors for directory in self.directories)

    @property
    def minors(self) -> int:
        return sum(directory.minors for directory in self.directories)

    @property
    def indexes(self) -> int:
        """Compactions of location indexes."""
        return sum(directory.indexes for directory in self.directories)


class BookieStats:
    """All counters of one bookie. Bytes are of whole entries, without framing, unless said."""

    __slots__ = (
        "adds_held",
        "adds_refused",
        "adds_rejected",
        "checkpoint_failures",
        "checkpoints",
        "collection",
        "deleted_ledgers",
        "flush",
        "flush_entries",
        "journals",
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
        "write_cache_hits",
        "write_cache_misses",
    )

    def __init__(self, journals: int = 1, directories: int = 1) -> None:
        self.journals = [JournalStats() for _ in range(journals)]
        self.adds_refused = 0
        """Adds that never came to a journal."""
        self.adds_held = 0
        """Adds that had to wait for a flush because both halves of the write cache were full."""
        self.adds_rejected = 0
        """Held adds that were answered "too many requests" after dbStorage_maxThrottleTimeMs."""
        self.checkpoint_failures = 0
        self.checkpoints = 0
        self.collection = CollectionStats(directories)
        self.deleted_ledgers = 0
        """Over-replicated ones whose entries were given up among them."""
        self.flush = Summary()
        """Milliseconds per checkpoint that wrote entries."""
        self.flush_entries = Summary()
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

    def add_entries(self) -> Outcome:
        """Of all adds, journal included: a new object."""
        whole = Outcome()
        whole.ok = merged([journal.adds.ok for journal in self.journals])
        whole.failed = merged([Summary(), *(journal.adds.failed for journal in self.journals)])
        whole.failed.count += self.adds_refused
        return whole

    @property
    def journal_bytes(self) -> int:
        """Records with their lengths, of all journals."""
        return sum(journal.bytes for journal in self.journals)
