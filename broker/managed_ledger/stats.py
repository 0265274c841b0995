"""ManagedLedgerStats: the counters of one managed ledger, plain integers that only rise.

`broker/metrics` exposes them and takes differences.

Histogram buckets are counts per interval, not cumulative; the last bucket is everything above the bounds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from bookkeeper.ensembles.ledger_handle import Added
from foundation.model.entry import Entry

ADD_LATENCY_BOUNDS_NS: Final = tuple(round(ms * 1e6) for ms in (0.5, 1, 5, 10, 20, 50, 100, 200, 1000))
"""Pulsar's buckets of `pulsar_storage_write_latency_le_*`: 0.5, 1, 5, 10, 20, 50, 100, 200, 1000 ms."""

ENTRY_SIZE_BOUNDS: Final = (128, 512, 1024, 2048, 4096, 16_384, 102_400, 1_048_576)
"""Pulsar's buckets of `pulsar_entry_size_le_*`, in bytes."""

_NO_LATENCIES: Final = [0] * (len(ADD_LATENCY_BOUNDS_NS) + 1)
_NO_SIZES: Final = [0] * (len(ENTRY_SIZE_BOUNDS) + 1)
"""The buckets of every managed ledger that no entry was added to since its opening."""


class AckStateCuts:
    """Counts the writes of cursors, of all managed ledgers together, that could not store every acknowledgement."""

    def __init__(self) -> None:
        self.ranges = 0
        """Writes that left acknowledged entries out."""
        self.batches = 0
        """Writes that left batches acknowledged in part out."""


class TimeSearches:
    """Counts searches by time, of all managed ledgers together: of seeks, expiry, backlog quotas and requests."""

    def __init__(self) -> None:
        self.count = 0
        """Searches that have ended."""
        self.reads = 0
        """Entries that they have read, from the cache or from storage."""


CHANGED_AT_ONCE: Final = 50_000
"""Names of one dict: a longer one holds the loop for 20 ms when it grows."""
DICTS_MAX: Final = 16
"""Dicts of a follower, enough for 800,000 topics that have changed once. More have the same names again and again."""


class ChangedLedgers:
    """Names of the managed ledgers that have changed, for each of its followers; notes nothing before the first one.

    Who reads all topics once and then these alone walks over no silent topic: sums over topics
    (`broker/numbers/namespace_sums.py`), the console's (`broker/console/traffic.py`), the search for idle topics
    (`broker/service/lifecycle/dormancy.py`).
    """

    __slots__ = ("_followers", "names")

    def __init__(self) -> None:
        # Python's garbage collector leaves a dict of strings alone; its passes would look at each name of a set.
        self.names: dict[str, None] | None = None
        """Those that no follower has yet; None without a follower: `LedgerContext.note_change` runs several times per
        message."""
        self._followers: list[Changes] = []

    def follow(self) -> Changes:
        """Returns the changes from now on, for one more follower, which must take them now and then."""
        self.pass_on()
        follower = Changes(self)
        self._followers.append(follower)
        return follower

    def note(self, name: str) -> None:
        """Notes a managed ledger that was opened or closed, or a topic without one that was."""
        if self.names is not None:
            self.names[name] = None
            if len(self.names) >= CHANGED_AT_ONCE:
                self.pass_on()

    def forget(self, follower: Changes) -> None:
        """Gives the follower no more names."""
        self._followers.remove(follower)
        if not self._followers:
            self.names = None

    def pass_on(self) -> None:
        """Gives the names to the followers. So one write for each change is enough, however many follow."""
        names, self.names = self.names, {}
        if names:
            for one in self._followers:
                one.add(names)


class Changes:
    """The changed managed ledgers of one follower since its last `take`."""

    __slots__ = ("_changed", "_names")

    def __init__(self, changed: ChangedLedgers) -> None:
        """Made by `ChangedLedgers.follow`."""
        self._changed = changed
        self._names: list[dict[str, None]] = []

    def add(self, names: dict[str, None]) -> None:
        """Adds names; copies them, because each follower empties its own dicts."""
        if self._names and len(self._names[-1]) + len(names) <= CHANGED_AT_ONCE:
            self._names[-1].update(names)
        elif len(self._names) < DICTS_MAX:
            self._names.append(names.copy())
        else:
            united, *others = self._names
            for more in (*others, names):
                united.update(more)
            self._names = [united]

    def take(self) -> Iterator[str]:
        """Yields each name that was noted since the last call, and forgets it then; one may come again.

        Several calls that are used at once divide the names among them.
        """
        self._changed.pass_on()
        while self._names:
            if self._names[-1]:
                # Taken out and freed one by one: 100,000 at once would hold the loop for 150 ms.
                yield self._names[-1].popitem()[0]
            else:
                self._names.pop()


class ManagedLedgerStats:
    """Counts adds and reads of one managed ledger."""

    __slots__ = (
        "add_errors",
        "add_latency_buckets",
        "add_latency_sum_ns",
        "bytes_added",
        "bytes_read",
        "entries_added",
        "entries_read",
        "entry_size_buckets",
        "last_added_ns",
        "read_errors",
        "storage_bytes_read",
        "storage_entries_read",
    )

    def __init__(self) -> None:
        self.entries_added = 0
        """Confirmed."""
        self.bytes_added = 0
        """Payload bytes of those."""
        self.last_added_ns = 0
        """Monotonic time of the last confirmation; 0 = none since the managed ledger was opened."""
        self.add_errors = 0
        """Entries that failed after they had been added to a ledger or queued for one."""
        self.add_latency_buckets = _NO_LATENCIES
        """Entries by the time from `add` to their confirmation. To be read only."""
        self.add_latency_sum_ns = 0
        """Estimated from the first and the last entry of each run; the buckets are exact."""
        self.entry_size_buckets = _NO_SIZES
        """Entries added, by size. To be read only."""
        self.entries_read = 0
        """Taken by cursors, from the cache or from storage; those given back are subtracted."""
        self.bytes_read = 0
        """Bytes of those."""
        self.storage_entries_read = 0
        """Read from the ledger client."""
        self.storage_bytes_read = 0
        """Bytes of those."""
        self.read_errors = 0
        """Storage reads that failed or took too long."""

    def added(self, entries: list[Entry], added: list[Added], now_ns: int) -> int:
        """Counts confirmed entries and returns their bytes.

        `added`: the adds that they came with, whose times never decrease.
        """
        if not self.entries_added:
            # With the first entry: most topics of a broker that has many are silent.
            self.add_latency_buckets = _NO_LATENCIES.copy()
            self.entry_size_buckets = _NO_SIZES.copy()
        total = 0
        size = -1
        same = 0
        buckets = self.entry_size_buckets
        for entry in entries:  # Sizes come in streaks, so a bucket is looked up per streak.
            if entry.size == size:
                same += 1
                continue
            if same:
                buckets[bisect_left(ENTRY_SIZE_BOUNDS, size)] += same
                total += size * same
            size = entry.size
            same = 1
        buckets[bisect_left(ENTRY_SIZE_BOUNDS, size)] += same
        total += size * same
        count = len(entries)
        self.entries_added += count
        self.bytes_added += total
        self.last_added_ns = now_ns
        # Times do not decrease: if the first and the last add are in one bucket, all are. None is after `now_ns`, but for a
        # clock that went back.
        longest, shortest = now_ns - added[0][2], now_ns - added[-1][2]
        buckets = self.add_latency_buckets
        bucket = bisect_left(ADD_LATENCY_BOUNDS_NS, longest)
        if longest == shortest or bucket == bisect_left(ADD_LATENCY_BOUNDS_NS, shortest):
            buckets[bucket] += count
        else:
            for _, entries_of_add, asked_ns in added:
                buckets[bisect_left(ADD_LATENCY_BOUNDS_NS, now_ns - asked_ns)] += entries_of_add
        # The mean of both ends: a sum over all adds would cost a subtraction for each.
        if shortest >= 0:
            self.add_latency_sum_ns += (longest + shortest) * count // 2
        return total

    def took(self, entries: list[Entry]) -> None:
        """Counts entries that a cursor took."""
        self.entries_read += len(entries)
        for entry in entries:
            self.bytes_read += entry.size

    def took_back(self, entries: Sequence[Entry]) -> None:
        """Uncounts entries that were given back without being dispatched."""
        self.entries_read -= len(entries)
        self.bytes_read -= sum([entry.size for entry in entries])


NO_STATS: Final = ManagedLedgerStats()
"""Of every managed ledger that has counted nothing since its opening. Nothing is ever counted here."""
