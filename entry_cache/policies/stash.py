"""Pip430Stash: the policy `pip430-stash`, the first revision of PIP-430.

It has a stash beside the queue, and a longer TTL for entries with expected reads. A size pass moves an entry with
expected reads to the stash, and no size pass removes it before its longer TTL is over. This is a guarantee, so a pass may
free less than it was asked for. Each pass looks at the stash first, then at the queue. An access extends nothing.

The text of the first revision does not say what a time pass does with a head that is older than the TTL, has expected
reads, and is younger than the longer TTL. Here it moves to the stash, so that the pass reaches the entries after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from entry_cache.expected_reads import CountsOf42, has_expected_reads
from entry_cache.policy import EXPECTED_READS, NO_LIMIT, Removed, Requeued, SizePass, positive
from entry_cache.policy_names import PIP430_STASH
from entry_cache.range_cache import evict
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry


@dataclass(slots=True)
class StashPass:
    """A size pass that has begun."""

    bytes_to_free: int
    """Bytes that the pass still has to remove; at 0 or below it ends."""

    stashed: int
    """Slots of the stash that the pass has not looked at yet."""


class StashCounts(CountsOf42):
    """Counts of the first revision: from any number on, and summed up for a duplicate."""

    def initial(self, expected_reads: int | None) -> int | None:
        """Every number is counted."""
        return expected_reads

    def fills_cache(self, expected_reads: int) -> bool:
        """Every storage read of an active cursor fills the cache."""
        return expected_reads >= 0

    def offered_again(self, present: Entry, count: int | None) -> bool:
        """The two counts are added up, unless the present entry is not counted."""
        if count is not None and count > 0 and present.expected_reads is not None:
            # The revision adds a second handler to the first: readers of both offers are to come.
            present.expected_reads += count
        return False


class Pip430Stash:
    """An `EvictionPolicy`."""

    def __init__(self, settings: CacheSettings) -> None:
        """Begins empty."""
        self.name = PIP430_STASH
        """The policy's name in settings."""
        self.counts = StashCounts()
        """Counts as the first revision does."""
        self.requeues = {EXPECTED_READS: 0}
        """How often an entry was put into the stash."""
        self._queue: deque[Entry] = deque()
        self._stash: deque[Entry] = deque()
        self._stashed_left: int | None = None
        """Slots of the stash that a cut time pass has not looked at yet; None between two passes."""
        self.configure(settings)

    def configure(self, settings: CacheSettings) -> None:
        """Takes over the TTL and the longer TTL (`managedLedgerCacheEvictionTimeThresholdMillisMax`)."""
        self._ttl_max_ns = max(settings.ttl_max_ns, settings.ttl_ns)
        self._longer_ns = self._ttl_max_ns - settings.ttl_ns

    def __len__(self) -> int:
        return len(self._stash) + len(self._queue)

    def __iter__(self) -> Iterator[Entry]:
        """Yields the stash first."""
        yield from self._stash
        yield from self._queue

    def admit(self, entries: list[Entry]) -> None:
        """Takes in new entries, the oldest first."""
        self._queue.extend(entries)

    # Passes

    def remove_expired(
        self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Removes entries older than the threshold; those with expected reads are stashed once."""
        if self._stashed_left is None:
            self._stashed_left = len(self._stash)
        # The number of slots and no position is kept, so it is cut to the slots that are left.
        self._stashed_left = min(self._stashed_left, len(self._stash))  # A size pass may have come between.
        removed = Removed()
        longer_ns = threshold_ns - self._longer_ns
        while self._stashed_left and removed.visits < visits_max:
            self._stashed_left -= 1
            entry = self._stash.popleft()
            removed.visits += 1
            if not entry.cached:
                entry.holder = None
            # An entry whose reads were all done in the stash goes after the normal time.
            elif entry.queued_at_ns < (longer_ns if has_expected_reads(entry) else threshold_ns):
                evict(entry, removed)
            else:
                # Back at the tail with its old time. The stash is not ordered by time, so each pass looks at
                # all of it.
                self._stash.append(entry)
        while self._queue and removed.visits < visits_max:
            entry = self._queue[0]
            if entry.cached and entry.queued_at_ns >= threshold_ns:
                break
            self._queue.popleft()
            removed.visits += 1
            if not entry.cached:
                entry.holder = None
            elif has_expected_reads(entry) and entry.queued_at_ns >= longer_ns:
                self._put_into_stash(entry, requeued)
            else:
                evict(entry, removed)
        # `done` must not depend on `visits_max` alone: the last visit may have been the last one needed.
        more = self._queue and (not self._queue[0].cached or self._queue[0].queued_at_ns < threshold_ns)
        removed.done = not (self._stashed_left or more)
        if removed.done:
            self._stashed_left = None
        return removed

    def begin_size_pass(self, bytes_to_free: int) -> StashPass:
        """Returns the state of a size pass, which looks once at the entries that are stashed now."""
        return StashPass(positive(bytes_to_free), len(self._stash))

    def free(
        self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Ends when the bytes are free, or earlier when only protected entries are left."""
        assert isinstance(size_pass, StashPass)
        removed = Removed()
        threshold_ns = now_ns - self._ttl_max_ns
        size_pass.stashed = min(size_pass.stashed, len(self._stash))  # A time pass ran between two slices.
        while removed.visits < visits_max and removed.size_bytes < size_pass.bytes_to_free:
            if size_pass.stashed:
                size_pass.stashed -= 1
                entry = self._stash.popleft()
            elif self._queue:
                entry = self._queue.popleft()
            else:
                break
            removed.visits += 1
            if not entry.cached:
                entry.holder = None
            elif has_expected_reads(entry) and entry.queued_at_ns >= threshold_ns:
                self._put_into_stash(entry, requeued)
            else:
                evict(entry, removed)
        size_pass.bytes_to_free -= removed.size_bytes
        removed.done = size_pass.bytes_to_free <= 0 or not (size_pass.stashed or self._queue)
        return removed

    def _put_into_stash(self, entry: Entry, requeued: Requeued | None) -> None:
        self._stash.append(entry)
        self.requeues[EXPECTED_READS] += 1
        if requeued is not None:
            requeued.setdefault(EXPECTED_READS, []).append(entry)

    def drop_invalidated(self) -> None:
        """Forgets entries that left the cache by other ways."""
        for slots in (self._stash, self._queue):
            kept = []
            for entry in slots:
                if entry.cached:
                    kept.append(entry)
                else:
                    entry.holder = None
            slots.clear()
            slots.extend(kept)
        # Slots are gone, so the number that a cut time pass has left means nothing any more; the pass begins
        # anew.
        self._stashed_left = None
