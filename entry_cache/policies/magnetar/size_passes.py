"""SizePasses: the size passes of the policy `magnetar`, and eviction without a pass.

A pass scans the queue once and gives each segment its place among the victims (`VictimOrder`). Then it removes the
victims in their order until enough bytes are free. The order is used by further passes for a while. `evict_now` does not
scan: it removes the victims that the order has so far, and after them the oldest segments.
"""

from __future__ import annotations

from typing import Final

from entry_cache.policies.magnetar.claims import Claims
from entry_cache.policies.magnetar.log_readers import LOOKS_PER_VIEW
from entry_cache.policies.magnetar.reader_view import ReaderView
from entry_cache.policies.magnetar.segment import CacheSegment, Claim
from entry_cache.policies.magnetar.segment_queue import SegmentQueue
from entry_cache.policies.magnetar.victim_order import VictimOrder
from entry_cache.policy import Removed

STEPS_PER_VISIT: Final = 8
"""Walking past this many segments costs one visit."""

LOGS_PER_VISIT: Final = 32
"""Comparing the shares of this many logs costs one visit."""

VISITS_PER_TIME: Final = 5
"""The cost of computing when a reader will come, in visits."""

DROPS_MAX: Final = 100
"""Upper limit on stale victims skipped by one `evict_now`: victims that a reader has come back for."""


class MagnetarPass:
    """A size pass that has begun."""

    __slots__ = ("bytes_to_free", "order", "scanned")

    def __init__(self, bytes_to_free: int) -> None:
        """Begins without an order."""
        self.bytes_to_free = bytes_to_free
        """Bytes that the pass still has to remove; at 0 or below it ends."""
        self.order: VictimOrder | None = None
        """The order that it follows; None before the first slice."""
        self.scanned = False
        """True if the order comes from this pass's own scan, so that no claim is out of date."""


class SizePasses:
    """Frees bytes by segments, with an order of victims that is shared by passes."""

    def __init__(self, queue: SegmentQueue, claims: Claims) -> None:
        """The policy sets the values below from the settings."""
        self._queue = queue
        self._claims = claims
        self._order: VictimOrder | None = None
        """The order of the last scan, or of the running one."""
        self.order_ns = 0
        """For how long an order is used at most."""
        self.quota_bytes = 0
        """`entryCacheTopicQuotaMB` in bytes."""
        self.charges_overhead = False
        """The objects of entries count against the size."""
        self.size_bytes_max = 0
        """The size of the cache."""

    def forget_old_order(self, now_ns: int) -> None:
        """Drops an order that is too old: it would keep its segments alive."""
        order = self._order
        if order is not None and not (self._queue.scan_runs or order.is_young(now_ns, self.order_ns)):
            self._order = None

    # Passes

    def free(self, size_pass: MagnetarPass, now_ns: int, visits_max: int) -> Removed:
        """Runs a size pass, or a slice of it; see `EvictionPolicy.free`."""
        removed = Removed()
        if size_pass.bytes_to_free <= 0:
            # The pass ends early. Its order must stay incomplete: a later pass would take it for a whole scan, and
            # remove entries that a reader is to come for before others that it never looked at.
            self._queue.end_scan()
            return removed
        order = size_pass.order
        if order is None:
            order = self._serving_order(now_ns, removed, visits_max) or self._begin_scan(
                size_pass, now_ns, removed
            )
        size_pass.order = order
        ended = self._go_on(size_pass, order, now_ns, removed, visits_max)
        if ended and removed.size_bytes < size_pass.bytes_to_free and not size_pass.scanned:
            # The order of an earlier pass has no victims left, so scan after all.
            order = size_pass.order = self._begin_scan(size_pass, now_ns, removed)
            ended = self._go_on(size_pass, order, now_ns, removed, visits_max)
        self._claims.end_slice()
        size_pass.bytes_to_free -= removed.size_bytes
        removed.done = ended or size_pass.bytes_to_free <= 0
        if removed.done:
            self._queue.end_scan()
        return removed

    def _begin_scan(self, size_pass: MagnetarPass, now_ns: int, removed: Removed) -> VictimOrder:
        held = self._queue.held
        # Topics are compared by the bytes of their entries, which are a part of the size while objects are charged too.
        whole = sum(held.values()) if self.charges_overhead else self.size_bytes_max
        share = max(self.quota_bytes, whole // max(1, len(held)))
        removed.visits += len(held) // LOGS_PER_VISIT
        if max(held.values(), default=0) <= share:
            share = 0  # No topic holds more than its share.
        size_pass.scanned = True
        self._queue.begin_scan()
        # An order of a scan that has not ended is replaced: its segments stand in the queue, so nothing is
        # lost.
        self._order = VictimOrder(now_ns, self._queue.scan_left, share)
        return self._order

    def _serving_order(self, now_ns: int, removed: Removed, visits_max: int) -> VictimOrder | None:
        """Returns the order of an earlier pass if it can be used again, else None.

        Segments cached since then with a claim EXPECTED get their place too, after readers at the tail have had time to
        read them; some of them only with the next pass. If finding them would take the whole slice, the order is not
        used again.
        """
        order = self._order
        if order is None or not order.serves(now_ns, self.order_ns):
            return None
        newcomers = []
        steps_max = visits_max * STEPS_PER_VISIT // 2
        walked = 0
        # A segment that still takes in entries is left alone: tail readers have not had the time to read it.
        until_ns = now_ns - self._queue.grain_ns
        # New segments stand at the end, so the walk stops at the first one that the order has seen.
        for segment in reversed(self._queue.segments):
            if segment.queued_at_ns < order.seen_ns:
                break
            walked += 1
            # Too many newcomers: a new scan costs the same walk and gives an exact order.
            if walked > max(steps_max, STEPS_PER_VISIT):
                removed.visits += walked // STEPS_PER_VISIT
                return None
            if segment.entries and order.seen_ns <= segment.born_ns < until_ns:
                newcomers.append(segment)
        removed.visits += walked // STEPS_PER_VISIT
        self._add_newcomers(newcomers, order, now_ns, until_ns, removed, visits_max)
        return order

    def _add_newcomers(
        self,
        newcomers: list[CacheSegment],
        order: VictimOrder,
        now_ns: int,
        until_ns: int,
        removed: Removed,
        visits_max: int,
    ) -> None:
        """Gives newer segments their place; `newcomers` has the newest first."""
        seen_ns = -1
        for segment in reversed(newcomers):
            # Stop between two times only. `seen_ns` is a time, so segments born at the same time must be placed
            # together or not at all.
            if removed.visits >= visits_max and segment.born_ns != seen_ns:
                order.seen_ns = segment.born_ns
                return
            seen_ns = segment.born_ns
            removed.visits += 1
            view = self._claims.view(segment, now_ns, removed)
            claim, _ = self._claims.claim(segment, view, now_ns)
            if claim is Claim.EXPECTED:
                self._queue.close(segment)
                self._add(segment, claim, view, order, removed)
        order.seen_ns = max(order.seen_ns, until_ns)

    def _go_on(
        self, size_pass: MagnetarPass, order: VictimOrder, now_ns: int, removed: Removed, visits_max: int
    ) -> bool:
        """Continues the scan, then removes victim after victim. Returns True if no victim is left."""
        queue = self._queue
        bytes_to_free = size_pass.bytes_to_free
        while queue.scan_left and removed.size_bytes < bytes_to_free and removed.visits < visits_max:
            segment = queue.pop_oldest()
            removed.visits += segment.visits
            if queue.tidy(segment):
                self._look_at(segment, bytes_to_free, order, now_ns, removed)
        if queue.scan_left:
            return False
        # Only now may other passes use the order: before, a victim could come before one that was never looked
        # at.
        order.complete = True
        while removed.size_bytes < bytes_to_free and removed.visits < visits_max:
            victim = order.next()
            if victim is None:
                return True
            segment, claim = victim
            removed.visits += 1
            # An order from an earlier pass may be out of date. The claims of this pass's own scan are of this
            # slice or a few slices ago.
            if not size_pass.scanned and self._reader_is_back(segment, claim, now_ns, removed):
                order.drop()
            else:
                self._remove(segment, claim, bytes_to_free, removed)
        return False

    def _look_at(
        self, segment: CacheSegment, bytes_to_free: int, order: VictimOrder, now_ns: int, removed: Removed
    ) -> None:
        """Gives a segment its place among the victims, or removes it at once if nothing comes before it."""
        claims = self._claims
        view = claims.view(segment, now_ns, removed)
        claim, for_sure = claims.claim(segment, view, now_ns)
        part: CacheSegment | None = None
        if claim is Claim.EXPECTED:
            if not for_sure:
                # Only some entries wait for a redelivery; the others must not be kept because of them.
                part = segment.split_off_others()
            elif (slowest := view.slowest) is not None:
                # The slowest reader stands within the segment: the entries before it are read, so they go
                # first.
                part = segment.split_before(slowest)
        if part is not None:
            part_claim, _ = claims.claim(part, view, now_ns)
            self._sort_in(part, part_claim, view, bytes_to_free, order, removed)
        self._sort_in(segment, claim, view, bytes_to_free, order, removed)

    def _sort_in(
        self,
        segment: CacheSegment,
        claim: Claim,
        view: ReaderView,
        bytes_to_free: int,
        order: VictimOrder,
        removed: Removed,
    ) -> None:
        if claim is Claim.NONE and order.holds_more(segment):
            # Nothing can come before a segment without readers of a topic that holds too much, so it goes
            # during the scan.
            self._remove(segment, claim, bytes_to_free, removed)
        if segment.entries:
            self._queue.keep(segment)
            self._add(segment, claim, view, order, removed)

    def _add(
        self, segment: CacheSegment, claim: Claim, view: ReaderView, order: VictimOrder, removed: Removed
    ) -> None:
        due_us = 0
        if claim is Claim.EXPECTED:
            removed.visits += VISITS_PER_TIME
            due_us = segment.due_us(view)
        order.add(segment, claim, due_us)

    def _reader_is_back(
        self,
        segment: CacheSegment,
        claim: Claim,
        now_ns: int,
        removed: Removed,
        looks_max: int = LOOKS_PER_VIEW,
    ) -> bool:
        """Returns True if the segment's claim has risen since the scan that found it."""
        view = self._claims.view(segment, now_ns, removed, looks_max)
        return self._claims.claim(segment, view, now_ns)[0] > claim

    def _remove(self, segment: CacheSegment, claim: Claim, bytes_to_free: int, removed: Removed) -> None:
        """Removes as many of its entries as are needed: the oldest, or if a reader comes, those farthest from it."""
        taken = segment.cut(bytes_to_free - removed.size_bytes, from_end=claim is Claim.EXPECTED)
        self._queue.remove(segment, taken, removed)

    # Without a pass

    def evict_now(self, bytes_to_free: int, now_ns: int) -> Removed:
        """Frees bytes without a scan and with few looks at readers, so that it costs by what it removes."""
        removed = Removed()
        order = self._order
        scan_runs = self._queue.scan_runs
        if order is not None and (scan_runs or order.serves(now_ns, self.order_ns)):
            drops = 0
            while removed.size_bytes < bytes_to_free and drops < DROPS_MAX:
                victim = order.next()
                if victim is None:
                    break
                segment, claim = victim
                removed.visits += 1
                # While a scan runs, its claims are fresh. 0 looks: this runs inside of an insert.
                if not scan_runs and self._reader_is_back(segment, claim, now_ns, removed, 0):
                    order.drop()
                    drops += 1
                else:
                    self._remove(segment, claim, bytes_to_free, removed)
        # No victims are known, or all of them were stale. The bound must hold all the same, so the oldest go
        # whatever their claim is.
        while removed.size_bytes < bytes_to_free and (oldest := self._queue.oldest()) is not None:
            removed.visits += 1
            claim, _ = self._claims.claim(oldest, self._claims.view(oldest, now_ns, removed, 0), now_ns)
            self._remove(oldest, claim, bytes_to_free, removed)
        self._claims.end_slice()
        return removed
