"""The policy `magnetar`: ours. It keeps entries that will be read, by looking at the positions of the readers.

Entries stand in the queue in segments, and a segment is judged as a whole by the positions of the log's cursors
(`Claim`):

* EXPECTED: a cursor that gets on stands at or before it, or a redelivery waits for one of its entries. The segment is
  requeued as long as that is so. A cursor that has stopped protects for a while only, so that a dead one fills no cache.
* MAY_RETURN: a cursor has read past it without acknowledging it, and would begin there again after a reconnect. The
  segment is requeued a limited number of times.
* NONE: the segment is removed when its time is over.

A size pass looks at each segment once (`size_passes.py`) and removes by claim: NONE first, then MAY_RETURN, then
EXPECTED in the order of the time until it will be read, the latest first. So a cache that is too small for a backlog
still serves what fits. Within a claim, topics that hold more than their share come first. Survivors of a size pass
keep their place, their time and their requeues.

It is strict: `evict_now` lets a `StrictSize` keep the cache below its size at every insert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from entry_cache.policies.magnetar.claims import Claims
from entry_cache.policies.magnetar.redeliveries import MagnetarListener, Redeliveries
from entry_cache.policies.magnetar.segment import CacheSegment, Claim
from entry_cache.policies.magnetar.segment_queue import SegmentQueue
from entry_cache.policies.magnetar.size_passes import MagnetarPass, SizePasses
from entry_cache.policy import EXPECTED_READS, MAY_RETURN, NO_LIMIT, Removed, Requeued, SizePass, positive
from entry_cache.policy_names import MAGNETAR
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry

SEGMENTS_PER_TTL: Final = 20
"""A segment takes in entries for the TTL divided by this, so its last entries are removed that much early."""

ORDERS_PER_TTL: Final = 4
"""An order of victims is used for the TTL divided by this at most."""

_CAUSES: Final = {Claim.EXPECTED: EXPECTED_READS, Claim.MAY_RETURN: MAY_RETURN}


class Magnetar:
    """An `EvictionPolicy`; `StrictSize` evicts through it without a pass."""

    def __init__(self, settings: CacheSettings) -> None:
        """Begins empty. `compose.py` attaches `listener`; without it the policy sees no cursor."""
        self.name = MAGNETAR
        """The policy's name in settings."""
        self.requeues = {EXPECTED_READS: 0, MAY_RETURN: 0}
        """Entries that passes requeued, by cause. Claims of expected reads are not limited in number."""
        self.counts = Redeliveries()
        """Counts redeliveries alone; positions tell of all other reads."""
        self.listener = MagnetarListener(self.counts)
        """Must be attached to the cache."""
        self._queue = SegmentQueue(self.counts.waiting)
        self._claims = Claims(self._queue)
        self._size_passes = SizePasses(self._queue, self._claims)
        # Bound once, because inserts call them for each run.
        self.admit = self._queue.admit
        """Takes in new entries, the oldest first."""
        self.evict_now = self._size_passes.evict_now
        """Removes so many bytes at once; costs by what it removes, and looks at little of what stays."""
        self.configure(settings)

    def configure(self, settings: CacheSettings) -> None:
        """Takes the settings over, at the start and after a change."""
        self._queue.grain_ns = settings.ttl_ns // SEGMENTS_PER_TTL
        # About as long as `pip430` keeps an entry with expected reads that no reader comes for.
        self._claims.patience_ns = settings.ttl_ns * max(0, settings.requeues_max)
        self._requeues_max = settings.requeues_max
        self._size_passes.order_ns = settings.ttl_ns // ORDERS_PER_TTL
        self._size_passes.quota_bytes = settings.topic_quota_bytes
        self._size_passes.size_bytes_max = settings.size_bytes_max
        self._size_passes.charges_overhead = settings.charges_overhead

    def __len__(self) -> int:
        return self._queue.slots

    def __iter__(self) -> Iterator[Entry]:
        """Yields the entries of the oldest segment first."""
        for segment in self._queue:
            yield from segment.entries

    def remove_expired(
        self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Removes entries that are older than the threshold and that no reader claims."""
        removed = Removed()
        # A requeued segment is queued now; with a later threshold the pass would meet it again for ever.
        threshold_ns = min(threshold_ns, now_ns)
        queue, claims = self._queue, self._claims
        while queue.segments:
            if removed.visits >= visits_max:
                removed.done = False
                break
            segment = queue.segments[0]
            # A segment of invalidated entries alone is dropped however young it is: it would hold their
            # buffers.
            if segment.queued_at_ns >= threshold_ns and any(entry.cached for entry in segment.entries):
                break
            queue.pop_oldest()
            removed.visits += segment.visits
            if not queue.tidy(segment):
                continue
            # Time passes look at claims anew: a claim is never stored, so a cursor that left or came back
            # counts at once.
            claim, for_sure = claims.claim(segment, view := claims.view(segment, now_ns, removed), now_ns)
            if claim is Claim.EXPECTED and not for_sure:
                others = segment.split_off_others()
                if others is not None:
                    other_claim = claims.claim(others, view, now_ns)
                    self._requeue_or_remove(others, other_claim, now_ns, removed, requeued)
            self._requeue_or_remove(segment, (claim, for_sure), now_ns, removed, requeued)
        claims.end_slice()
        self._size_passes.forget_old_order(now_ns)
        return removed

    def _requeue_or_remove(
        self,
        segment: CacheSegment,
        found: tuple[Claim, bool],
        now_ns: int,
        removed: Removed,
        requeued: Requeued | None,
    ) -> None:
        """`found` is the claim, and True if it holds for sure: only then it is not limited in number."""
        claim, for_sure = found
        if for_sure or (claim and segment.requeues < self._requeues_max):
            # Only an uncertain claim uses up a requeue; a backlog that a cursor works off may take any number
            # of them.
            segment.requeues += not for_sure
            segment.queued_at_ns = now_ns
            self._queue.segments.append(segment)
            cause = _CAUSES[claim]
            self.requeues[cause] += len(segment.entries)
            if requeued is not None:
                requeued.setdefault(cause, []).extend(segment.entries)
        else:
            self._queue.remove(segment, segment.entries, removed)

    def begin_size_pass(self, bytes_to_free: int) -> MagnetarPass:
        """Returns the state of a pass that frees so many bytes."""
        return MagnetarPass(positive(bytes_to_free))

    def free(
        self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Removes the next entries of a size pass, which requeues nothing."""
        assert isinstance(size_pass, MagnetarPass)
        return self._size_passes.free(size_pass, now_ns, visits_max)

    def drop_invalidated(self) -> None:
        """Forgets entries that left the cache by other ways."""
        for segment in self._queue:
            self._queue.tidy(segment)
