"""RemovalQueue: the policy `pip430`, one queue over all cached entries (PIP-430, RangeCacheRemovalQueue).

Every insert appends its entries at the tail. Passes work at the head, and there is one pass for age and one for
size. A pass decides on the head in this order:

1. The entry was invalidated: drop its slot.
2. The pass has no need to go on (the head is young enough; enough bytes were freed): stop.
3. The entry was read since the last visit (`extend_recently_accessed`), or has expected reads left and was requeued
   fewer than `requeues_max` times: requeue it, which means move it to the tail with a new time.
4. Otherwise remove it.

So the queue is ordered by `queued_at_ns`, and a time pass may stop at the first entry that is young enough. A size pass
meets requeued entries again: expected reads decide the order of removal, and guarantee nothing. 4.2 requeues until the
requeues of an entry are used up, 5.0 only during the first round through the queue.

Slices of one pass (`visits_max`) remove exactly what the whole pass would have removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from entry_cache.policy import (
    EXPECTED_READS,
    NO_LIMIT,
    RECENTLY_ACCESSED,
    Removed,
    Requeued,
    SizePass,
    positive,
)
from entry_cache.profiles import Profile
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry, Holder


@dataclass(slots=True)
class QueuePass:
    """A size pass of the removal queue that has begun."""

    bytes_to_free: int
    """Bytes that the pass still has to remove; at 0 or below it ends."""

    protected_visits: int
    """Further visits during which the pass still requeues; after them it removes every head."""


class RemovalQueue:
    """The `EvictionPolicy` of PIP-430."""

    def __init__(self, profile: Profile, settings: CacheSettings) -> None:
        """Follows the rules of one release (`Profile`) with these settings."""
        self.name = profile.name
        """The release whose rules it follows, or `fifo-ttl`."""
        self.counts = profile.counts
        """Counts expected reads as that release does."""
        self.requeues = {EXPECTED_READS: 0, RECENTLY_ACCESSED: 0}
        """Entries that passes requeued, by cause."""
        self._profile = profile
        self._slots: deque[Entry] = deque()
        self.admit = self._slots.extend
        """Takes in new entries. Bound once: inserts call it for each run, and a method in between would double the cost."""
        self.configure(settings)

    def configure(self, settings: CacheSettings) -> None:
        """Takes the settings over, at the start and after a change."""
        protects = self._profile.protects
        self._requeues_max = settings.requeues_max if protects else 0
        self._extend_recently_accessed = protects and settings.extend_recently_accessed

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Entry]:
        """Yields the head first."""
        return iter(self._slots)

    def remove_expired(
        self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Removes entries older than the threshold. Keeps no state between slices: requeued entries stand at the tail."""
        return self._pass(threshold_ns, NO_LIMIT, NO_LIMIT, now_ns, visits_max, requeued)

    def begin_size_pass(self, bytes_to_free: int) -> QueuePass:
        """Returns the state of a pass that frees so many bytes."""
        protected_visits = len(self._slots) if self._profile.protects_once else NO_LIMIT
        return QueuePass(positive(bytes_to_free), protected_visits)

    def free(
        self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Visits the next entries of a size pass, and removes or requeues them."""
        assert isinstance(size_pass, QueuePass)
        removed = self._pass(
            NO_LIMIT, size_pass.bytes_to_free, size_pass.protected_visits, now_ns, visits_max, requeued
        )
        size_pass.bytes_to_free -= removed.size_bytes
        size_pass.protected_visits -= removed.visits
        return removed

    def _pass(
        self,
        threshold_ns: int,
        bytes_to_free: int,
        protected_visits: int,
        now_ns: int,
        visits_max: int,
        requeued: Requeued | None,
    ) -> Removed:
        """Runs one pass, or a slice of it: the rules of the module's docstring.

        One loop for both, with local names and without calls (`has_expected_reads`): it visits every entry ever cached.
        """
        pop, push = (slots := self._slots).popleft, self._slots.append
        removed: list[Entry] = []
        by_access, by_count = list[Entry](), list[Entry]()
        size_bytes = visits = 0
        extend_accessed, requeues_max, done = self._extend_recently_accessed, self._requeues_max, True
        # `range` counts the visits: cheaper than an own counter.
        for visits in range(visits_max):
            if not slots:
                break
            entry = slots[0]
            # Invalidated: tested first, so each pass drops the slot, even one that needs nothing.
            if not entry.cached:
                pop()
                entry.holder = None
                continue
            if entry.queued_at_ns >= threshold_ns or size_bytes >= bytes_to_free:
                break
            pop()
            if visits < protected_visits and (
                # An access comes first and has no limit, so an entry that is read in each interval stays for ever.
                (accessed := extend_accessed and entry.accessed)
                or ((count := entry.expected_reads) and count > 0 and entry.requeue_count < requeues_max)
            ):
                (by_access if accessed else by_count).append(entry)
                entry.queued_at_ns = now_ns
                entry.accessed = False
                # A requeue for an access uses up one of `requeues_max` too: Pulsar has one counter for both.
                entry.requeue_count += 1
                push(entry)
            else:
                # As `range_cache.evict`, written out: the call would cost a tenth of a removal.
                size = entry.size
                holder: Holder = entry.holder  # type: ignore[assignment]
                del holder.entries[entry.entry_id]
                holder.size_bytes -= size
                entry.holder = None
                entry.cached = False
                size_bytes += size
                removed.append(entry)
        else:
            visits, done = visits_max, not slots
        for cause, again in ((RECENTLY_ACCESSED, by_access), (EXPECTED_READS, by_count)):
            if again:
                self.requeues[cause] += len(again)
                if requeued is not None:
                    requeued.setdefault(cause, []).extend(again)
        return Removed(removed, size_bytes, visits, done)

    def drop_invalidated(self) -> None:
        """Forgets entries that left the cache by other ways. Costs a walk over the whole queue."""
        kept = []
        for entry in self._slots:
            if entry.cached:
                kept.append(entry)
            else:
                entry.holder = None
        self._slots.clear()
        self._slots.extend(kept)
