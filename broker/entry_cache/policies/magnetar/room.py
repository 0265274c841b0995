"""Room: the size passes of the policy `magnetar`, and what leaves at once.

A pass goes over the queue once and gives each segment its place among the victims (`VictimOrder`); then they go, the
first ones first, until there is room. The order serves further passes for a while. Where a pass may not be waited for,
what the order has so far goes, and after that the oldest.
"""

from __future__ import annotations

from typing import Final

from broker.entry_cache.active_cursors import LOOKS_PER_VIEW
from broker.entry_cache.policies.magnetar.claims import Claims
from broker.entry_cache.policies.magnetar.segment import Claim, Segment
from broker.entry_cache.policies.magnetar.segment_queue import SegmentQueue
from broker.entry_cache.policies.magnetar.victim_order import VictimOrder
from broker.entry_cache.policies.policy import Removed
from broker.entry_cache.reader_view import ReaderView

STEPS_PER_VISIT: Final = 8
"""Segments that can be passed by for the price of a visit."""

LOGS_PER_VISIT: Final = 32
"""Logs whose share can be compared for the price of a visit."""

VISITS_PER_TIME: Final = 5
"""What it costs to work out when somebody will come."""

DROPS_MAX: Final = 100
"""Victims to which somebody has come back since, met in a row where there is no time for more."""


class RoomPass:
    """A size pass that has begun."""

    __slots__ = ("bytes_to_free", "lapped", "order")

    def __init__(self, bytes_to_free: int) -> None:
        self.bytes_to_free = bytes_to_free
        self.order: VictimOrder | None = None
        """None before the first slice."""
        self.lapped = False
        """Whether the order is of this pass's own lap, and so as things are now."""


class Room:
    __slots__ = ("_claims", "_order", "_queue", "order_ns", "quota_bytes", "size_bytes_max")

    def __init__(self, queue: SegmentQueue, claims: Claims) -> None:
        self._queue = queue
        self._claims = claims
        self._order: VictimOrder | None = None
        """Of the last lap, or of the one under way."""
        self.order_ns = 0
        """For how long an order serves at most."""
        self.quota_bytes = 0
        self.size_bytes_max = 0

    def forget_old_order(self, now_ns: int) -> None:
        """It would keep alive what it names."""
        order = self._order
        if order is not None and not (self._queue.lap_under_way or order.is_young(now_ns, self.order_ns)):
            self._order = None

    # Passes

    def free(self, size_pass: RoomPass, now_ns: int, visits_max: int) -> Removed:
        removed = Removed()
        order = size_pass.order
        if order is None:
            order = self._serving_order(now_ns, removed, visits_max) or self._begin_lap(
                size_pass, now_ns, removed
            )
        size_pass.order = order
        ended = self._go_on(size_pass, order, now_ns, removed, visits_max)
        if ended and removed.size_bytes < size_pass.bytes_to_free and not size_pass.lapped:
            order = size_pass.order = self._begin_lap(
                size_pass, now_ns, removed
            )  # An earlier one has run out.
            ended = self._go_on(size_pass, order, now_ns, removed, visits_max)
        self._claims.end_slice()
        size_pass.bytes_to_free -= removed.size_bytes
        removed.done = ended or size_pass.bytes_to_free <= 0
        if removed.done:
            self._queue.end_lap()
        return removed

    def _begin_lap(self, size_pass: RoomPass, now_ns: int, removed: Removed) -> VictimOrder:
        held = self._queue.held
        share = max(self.quota_bytes, self.size_bytes_max // max(1, len(held)))
        removed.visits += len(held) // LOGS_PER_VISIT
        if max(held.values(), default=0) <= share:
            share = 0  # Nobody is to be asked first.
        size_pass.lapped = True
        self._queue.begin_lap()
        self._order = VictimOrder(now_ns, self._queue.lap_left, share)
        return self._order

    def _serving_order(self, now_ns: int, removed: Removed, visits_max: int) -> VictimOrder | None:
        """An earlier order serves again: what was cached since then and is awaited gets its place too, once whoever
        follows the tail has had time to read it. What is too much for this slice gets it with the next pass; where
        so much has come that finding it would take the slice, the order serves no more."""
        order = self._order
        if order is None or not order.serves(now_ns, self.order_ns):
            return None
        newcomers = []
        steps_max = visits_max * STEPS_PER_VISIT // 2
        walked = 0
        until_ns = now_ns - self._queue.grain_ns
        for segment in reversed(self._queue.segments):
            if segment.queued_at_ns < order.seen_ns:
                break
            walked += 1
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
        newcomers: list[Segment],
        order: VictimOrder,
        now_ns: int,
        until_ns: int,
        removed: Removed,
        visits_max: int,
    ) -> None:
        """`newcomers`: the newest first."""
        seen_ns = -1
        for segment in reversed(newcomers):
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
        self, size_pass: RoomPass, order: VictimOrder, now_ns: int, removed: Removed, visits_max: int
    ) -> bool:
        """The lap, then victim after victim. Whether nothing is left to take."""
        queue = self._queue
        bytes_to_free = size_pass.bytes_to_free
        while queue.lap_left and removed.size_bytes < bytes_to_free and removed.visits < visits_max:
            segment = queue.pop_oldest()
            removed.visits += segment.visits
            if queue.tidy(segment):
                self._look_at(segment, bytes_to_free, order, now_ns, removed)
        if queue.lap_left:
            return False
        order.complete = True
        while removed.size_bytes < bytes_to_free and removed.visits < visits_max:
            victim = order.next()
            if victim is None:
                return True
            segment, claim = victim
            removed.visits += 1
            if not size_pass.lapped and self._somebody_is_back(segment, claim, now_ns, removed):
                order.drop()
            else:
                self._take(segment, claim, bytes_to_free, removed)
        return False

    def _look_at(
        self, segment: Segment, bytes_to_free: int, order: VictimOrder, now_ns: int, removed: Removed
    ) -> None:
        """Its place among the victims; or out at once, if nothing goes before it."""
        claims = self._claims
        view = claims.view(segment, now_ns, removed)
        claim, for_sure = claims.claim(segment, view, now_ns)
        part: Segment | None = None
        if claim is Claim.EXPECTED:
            if not for_sure:
                part = segment.split_off_unawaited()
            elif (slowest := view.slowest) is not None:
                part = segment.split_before(slowest)
        if part is not None:
            part_claim, _ = claims.claim(part, view, now_ns)
            self._sort_in(part, part_claim, view, bytes_to_free, order, removed)
        self._sort_in(segment, claim, view, bytes_to_free, order, removed)

    def _sort_in(
        self,
        segment: Segment,
        claim: Claim,
        view: ReaderView,
        bytes_to_free: int,
        order: VictimOrder,
        removed: Removed,
    ) -> None:
        if claim is Claim.NOBODY and order.holds_more(segment):
            self._take(segment, claim, bytes_to_free, removed)
        if segment.entries:
            self._queue.keep(segment)
            self._add(segment, claim, view, order, removed)

    def _add(
        self, segment: Segment, claim: Claim, view: ReaderView, order: VictimOrder, removed: Removed
    ) -> None:
        due_us = 0
        if claim is Claim.EXPECTED:
            removed.visits += VISITS_PER_TIME
            due_us = segment.due_us(view)
        order.add(segment, claim, due_us)

    def _somebody_is_back(
        self, segment: Segment, claim: Claim, now_ns: int, removed: Removed, looks_max: int = LOOKS_PER_VIEW
    ) -> bool:
        """Since the lap that found the claim."""
        view = self._claims.view(segment, now_ns, removed, looks_max)
        return self._claims.claim(segment, view, now_ns)[0] > claim

    def _take(self, segment: Segment, claim: Claim, bytes_to_free: int, removed: Removed) -> None:
        """Remove as many of its entries as are needed: the oldest, or if a reader comes the farthest from it."""
        taken = segment.give_up(bytes_to_free - removed.size_bytes, from_end=claim is Claim.EXPECTED)
        self._queue.remove(segment, taken, removed)

    # At once

    def make(self, bytes_to_free: int, now_ns: int) -> Removed:
        """Without a lap, and looking at as few readers as can be: it costs by what it removes."""
        removed = Removed()
        order = self._order
        lap_under_way = self._queue.lap_under_way
        if order is not None and (lap_under_way or order.serves(now_ns, self.order_ns)):
            drops = 0
            while removed.size_bytes < bytes_to_free and drops < DROPS_MAX:
                victim = order.next()
                if victim is None:
                    break
                segment, claim = victim
                removed.visits += 1
                if not lap_under_way and self._somebody_is_back(segment, claim, now_ns, removed, 0):
                    order.drop()
                    drops += 1
                else:
                    self._take(segment, claim, bytes_to_free, removed)
        while removed.size_bytes < bytes_to_free and (oldest := self._queue.oldest()) is not None:
            removed.visits += 1
            claim, _ = self._claims.claim(oldest, self._claims.view(oldest, now_ns, removed, 0), now_ns)
            self._take(oldest, claim, bytes_to_free, removed)
        self._claims.end_slice()
        return removed
