"""The policy `magnetar`: ours. It keeps what will be read, by looking at where the readers stand.

Entries stand in the queue in segments, and a segment is judged as a whole by the positions of the log's cursors:

* expected: a cursor that gets on stands at or before it, or a replay waits for one of its entries. It stays as
  long as that is so. A cursor that has stopped protects for a while only, so that a dead one fills no cache.
* may return: somebody has read past it without acknowledging it, and would begin there again after a reconnect.
  It gets a number of extensions.
* nobody: it leaves when its time is over.

For want of room a pass looks at each segment once. What nobody comes for goes first, then what somebody may
return to, then what is expected, by the time at which it will be read (distance and speed of the readers behind it):
what is needed last goes first, so that a cache which is too small for a backlog still serves what fits. In each group
topics that hold more than their share come first. What stays keeps its place, its time and its extensions: a pass
charges no survivor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from broker.entry_cache.policies.names import MAGNETAR
from broker.entry_cache.policies.policy import (
    EXPECTED_READS,
    MAY_RETURN,
    NO_LIMIT,
    Removed,
    SizePass,
    positive,
)
from broker.entry_cache.policies.segment import Claim, Segment
from broker.entry_cache.policies.victim_order import VictimOrder
from broker.entry_cache.range_cache import CachedLog, RangeCache
from broker.entry_cache.reader_view import NOBODY, ReaderView
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry

SEGMENT_ENTRIES_MAX: Final = 64
SEGMENTS_PER_TTL: Final = 20
"""A segment takes in entries for this part of the time to live, so its last entries leave that much early."""

VISITS_PER_VIEW: Final = 20
"""What it costs to look where the readers of a log stand."""

STEPS_PER_VISIT: Final = 8
"""Segments that can be passed by for the price of a visit."""

ORDERS_PER_TTL: Final = 4
"""An order of victims serves for this part of the time to live at most."""

_CAUSES: Final = {Claim.EXPECTED: EXPECTED_READS, Claim.MAY_RETURN: MAY_RETURN}


class RoomPass:
    """A size pass that has begun."""

    __slots__ = ("bytes_to_free", "lapped", "left", "order")

    def __init__(self, bytes_to_free: int) -> None:
        self.bytes_to_free = bytes_to_free
        self.order: VictimOrder | None = None
        """None before the first slice."""
        self.lapped = False
        """Whether the order is of this pass's own lap, and so as things are now."""
        self.left = 0
        """Segments that the lap which makes the order has not looked at; 0 = it has ended, or an earlier order serves."""


class Magnetar:
    """A `Policy`. The counts at the entries are of replays alone."""

    __slots__ = (
        "_grain_ns",
        "_held",
        "_kept",
        "_open",
        "_order",
        "_order_ns",
        "_patience_ns",
        "_quota_bytes",
        "_returns_max",
        "_segments",
        "_size_bytes_max",
        "_slots",
        "_views",
        "_waiting",
        "by_position",
        "name",
        "requeues",
        "strict",
        "watched",
    )

    def __init__(self, settings: EntryCacheSettings) -> None:
        self.name = MAGNETAR
        self.strict = True
        self.by_position = True
        self.requeues = {EXPECTED_READS: 0, MAY_RETURN: 0}
        self.watched = False
        self._segments: deque[Segment] = deque()
        self._open: dict[RangeCache, Segment] = {}
        """By ledger, the segment that takes in more."""
        self._held: dict[CachedLog, int] = {}
        """Bytes in slots, by log; none are left out but logs without any."""
        self._kept: list[Segment] = []
        """What the lap of a size pass has looked at: the front of the queue until the pass ends."""
        self._slots = 0
        self._waiting: dict[Entry, set[int]] = {}
        """The readers whose replays wait for a cached entry; while there are none no segment needs to be searched for
        them. Who waits twice claims once, and nobody takes back the claim of another."""
        self._order: VictimOrder | None = None
        """Of the last lap: it serves further passes for a while."""
        self._views: dict[CachedLog, ReaderView] = {}
        """Of the slice under way."""
        self.configure(settings)

    def configure(self, settings: EntryCacheSettings) -> None:
        self._grain_ns = settings.ttl_ns // SEGMENTS_PER_TTL
        self._order_ns = settings.ttl_ns // ORDERS_PER_TTL
        self._patience_ns = settings.ttl_ns * max(0, settings.requeues_max)
        self._returns_max = settings.requeues_max
        self._quota_bytes = settings.topic_quota_bytes
        self._size_bytes_max = settings.size_bytes_max

    def __len__(self) -> int:
        return self._slots

    def __iter__(self) -> Iterator[Entry]:
        for segment in (*self._kept, *self._segments):
            yield from segment.entries

    # Entries

    def initial_count(self, expected_reads: int) -> int:
        """Readers are seen by their positions; only replays are counted."""
        return 0

    def caches_storage_reads(self, expected_reads: int) -> bool:
        return expected_reads >= 1

    def offered_again(self, present: Entry, count: int) -> bool:
        """Its readers are those of the position, whoever offers it."""
        return True

    def admit(self, entries: list[Entry]) -> None:
        self._slots += len(entries)
        head = entries[0]
        holder: RangeCache = head.holder  # type: ignore[assignment]
        self._held[holder.log] = self._held.get(holder.log, 0) + sum([entry.size for entry in entries])
        segment = self._open.get(holder)
        if (
            segment is not None
            and len(segment.entries) + len(entries) <= SEGMENT_ENTRIES_MAX
            and head.queued_at_ns - segment.born_ns < self._grain_ns
            and segment.entries
            and segment.entries[-1].entry_id < head.entry_id
        ):
            segment.entries += entries
            return
        for first in range(0, len(entries), SEGMENT_ENTRIES_MAX):
            newest = Segment(holder, entries[first : first + SEGMENT_ENTRIES_MAX], head.queued_at_ns)
            self._segments.append(newest)
        self._open[holder] = newest

    def handed_over(self, entries: Iterable[Entry]) -> None:
        """The cursor has moved on, which is all there is to know."""

    def put_back(self, reader: int, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.cached:
                waiting = self._waiting.setdefault(entry, set())
                waiting.add(reader)
                entry.expected_reads = len(waiting)

    kept_back = put_back
    """The cursor has moved past it all the same."""

    def taken_again(self, reader: int, entry: Entry) -> None:
        waiting = self._waiting.get(entry)
        if waiting is not None:
            waiting.discard(reader)
            entry.expected_reads = len(waiting)
            if not waiting:
                del self._waiting[entry]

    # Too old

    def remove_expired(self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        removed = Removed()
        threshold_ns = min(threshold_ns, now_ns)  # What is kept is queued now, and must not be met again.
        segments = self._segments
        while segments:
            if removed.visits + self._view_visits() >= visits_max:
                removed.done = False
                break
            segment = segments[0]
            if segment.queued_at_ns >= threshold_ns and any(entry.cached for entry in segment.entries):
                break
            segments.popleft()
            removed.visits += _visits(segment)
            if not self._tidy(segment):
                continue
            view = self._view(segment, now_ns)
            claim, for_sure = self._claim(segment, view, now_ns)
            if claim is Claim.EXPECTED and not for_sure:
                others = segment.split_off_unawaited()
                if others is not None:
                    self._keep_or_remove(others, *self._claim(others, view, now_ns), now_ns, removed)
            self._keep_or_remove(segment, claim, for_sure, now_ns, removed)
        removed.visits += self._view_visits()
        self._views.clear()
        if self._order is not None and not self._order.is_young(now_ns, self._order_ns):
            self._order = None  # It would keep alive what it names.
        return removed

    def _keep_or_remove(
        self, segment: Segment, claim: Claim, for_sure: bool, now_ns: int, removed: Removed
    ) -> None:
        if for_sure or (claim and segment.extensions < self._returns_max):
            segment.extensions += not for_sure
            segment.queued_at_ns = now_ns
            self._segments.append(segment)
            self._note(segment, _CAUSES[claim], removed)
        else:
            removed.visits += len(segment.entries)
            self._remove(segment, segment.entries, removed)

    def _claim(self, segment: Segment, view: ReaderView, now_ns: int) -> tuple[Claim, bool]:
        """The strongest claim, and whether it holds without an end. That of a replay does not: an entry that is
        acknowledged while it waits is never asked for."""
        claim = segment.claim(view, now_ns, self._patience_ns)
        if claim is not Claim.EXPECTED and self._waiting and segment.awaited_by_replay():
            return Claim.EXPECTED, False
        return claim, claim is Claim.EXPECTED

    def _view(self, segment: Segment, now_ns: int) -> ReaderView:
        log = segment.holder.log
        view = self._views.get(log)
        if view is None:
            readers = log.readers
            view = NOBODY if readers is None else readers.view(now_ns, self._patience_ns)
            self._views[log] = view
        return view

    def _tidy(self, segment: Segment) -> bool:
        """Drop the slots of invalidated entries; whether any entry is left."""
        for entry in segment.forget_invalidated():
            self._slots -= 1
            self._forget(segment, entry)
        if segment.entries:
            return True
        self._close(segment)
        return False

    def _forget(self, segment: Segment, entry: Entry) -> None:
        """The entry has no slot any more."""
        if entry.expected_reads > 0:
            self._waiting.pop(entry, None)
        log = segment.holder.log
        left = self._held[log] - entry.size
        if left:
            self._held[log] = left
        else:
            del self._held[log]

    def _view_visits(self) -> int:
        """What the views that were made so far cost, in visits."""
        return VISITS_PER_VIEW * len(self._views)

    def _note(self, segment: Segment, cause: str, removed: Removed) -> None:
        self.requeues[cause] += len(segment.entries)
        if self.watched:
            removed.requeued.setdefault(cause, []).extend(segment.entries)

    # Want of room

    def begin_size_pass(self, bytes_to_free: int) -> RoomPass:
        return RoomPass(positive(bytes_to_free))

    def free(self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        assert isinstance(size_pass, RoomPass)
        removed = Removed()
        order = size_pass.order or self._order
        if order is None or (size_pass.order is None and not order.serves(now_ns, self._order_ns)):
            order = self._begin_lap(size_pass, now_ns)
        elif size_pass.order is None:
            self._look_at_newcomers(order, now_ns, removed, visits_max)
        size_pass.order = order
        ended = self._go_on(size_pass, order, now_ns, removed, visits_max)
        if ended and removed.size_bytes < size_pass.bytes_to_free and not size_pass.lapped:
            order = size_pass.order = self._begin_lap(size_pass, now_ns)  # An earlier order has run out.
            ended = self._go_on(size_pass, order, now_ns, removed, visits_max)
        removed.visits += self._view_visits()
        self._views.clear()
        size_pass.bytes_to_free -= removed.size_bytes
        removed.done = ended or size_pass.bytes_to_free <= 0
        if removed.done:
            self.abandon(size_pass)
        return removed

    def abandon(self, size_pass: SizePass) -> None:
        """What was kept stands where it stood."""
        self._segments.extendleft(segment for segment in reversed(self._kept) if segment.entries)
        self._kept = []

    def _begin_lap(self, size_pass: RoomPass, now_ns: int) -> VictimOrder:
        share = max(self._quota_bytes, self._size_bytes_max // max(1, len(self._held)))
        if max(self._held.values(), default=0) <= share:
            share = 0  # Nobody is to be asked first.
        size_pass.lapped = True
        size_pass.left = len(self._segments)
        self._order = VictimOrder(now_ns, size_pass.left, share)
        return self._order

    def _look_at_newcomers(self, order: VictimOrder, now_ns: int, removed: Removed, visits_max: int) -> None:
        """An earlier order serves again: what was cached since then and is awaited gets its place too, once whoever
        follows the tail has had time to read it. What is too much for this slice gets it with the next pass."""
        newcomers = []
        walked = 0
        until_ns = now_ns - self._grain_ns
        for segment in reversed(self._segments):
            if segment.queued_at_ns < order.seen_ns:
                break
            walked += 1
            if segment.entries and order.seen_ns <= segment.born_ns < until_ns:
                newcomers.append(segment)
        removed.visits += walked // STEPS_PER_VISIT
        seen_ns = -1
        for segment in reversed(newcomers):
            if removed.visits + self._view_visits() >= visits_max and segment.born_ns != seen_ns:
                order.seen_ns = segment.born_ns
                return
            seen_ns = segment.born_ns
            removed.visits += 1
            view = self._view(segment, now_ns)
            claim, _ = self._claim(segment, view, now_ns)
            if claim is Claim.EXPECTED:
                self._close(segment)
                order.add(segment, claim, segment.due_us(view), over=order.holds_more(segment))
        order.seen_ns = max(order.seen_ns, until_ns)

    def _go_on(
        self, size_pass: RoomPass, order: VictimOrder, now_ns: int, removed: Removed, visits_max: int
    ) -> bool:
        """The lap, then victim after victim. Whether nothing is left to take."""
        while (
            size_pass.left
            and removed.size_bytes < size_pass.bytes_to_free
            and removed.visits + self._view_visits() < visits_max
        ):
            size_pass.left -= 1
            segment = self._segments.popleft()
            removed.visits += _visits(segment)
            self._look_at(segment, size_pass, order, now_ns, removed)
        if size_pass.left:
            return False
        while removed.size_bytes < size_pass.bytes_to_free and removed.visits < visits_max:
            victim = order.next()
            if victim is None:
                return True
            segment, claim = victim
            removed.visits += 1
            if not size_pass.lapped and self._claim(segment, self._view(segment, now_ns), now_ns)[0] > claim:
                order.drop()  # Somebody has come back to it since the lap.
                continue
            self._take(segment, claim, size_pass, removed)
        return False

    def _look_at(
        self, segment: Segment, size_pass: RoomPass, order: VictimOrder, now_ns: int, removed: Removed
    ) -> None:
        if not self._tidy(segment):
            return
        view = self._view(segment, now_ns)
        claim, for_sure = self._claim(segment, view, now_ns)
        part: Segment | None = None
        if claim is Claim.EXPECTED:
            if not for_sure:
                part = segment.split_off_unawaited()
            elif (slowest := view.slowest) is not None:
                part = segment.split_before(slowest)
        if part is not None:
            part_claim, _ = self._claim(part, view, now_ns)
            self._sort_in(part, part_claim, view, size_pass, order, removed)
        self._sort_in(segment, claim, view, size_pass, order, removed)

    def _sort_in(
        self,
        segment: Segment,
        claim: Claim,
        view: ReaderView,
        size_pass: RoomPass,
        order: VictimOrder,
        removed: Removed,
    ) -> None:
        """Remove it at once if nothing goes before it; otherwise it gets its place among the victims."""
        over = order.holds_more(segment)
        if claim is Claim.NOBODY and over:
            self._take(segment, claim, size_pass, removed)
        if segment.entries:
            self._kept.append(segment)
            self._close(segment)  # What comes later is judged by itself.
            order.add(segment, claim, segment.due_us(view) if claim is Claim.EXPECTED else 0, over=over)

    def _take(self, segment: Segment, claim: Claim, size_pass: RoomPass, removed: Removed) -> None:
        """Remove as many of its entries as are needed: the oldest, or if a reader comes the farthest from it."""
        missing = size_pass.bytes_to_free - removed.size_bytes
        entries = segment.entries
        from_end = claim is Claim.EXPECTED
        count = size_bytes = 0
        for entry in reversed(entries) if from_end else entries:
            if size_bytes >= missing:
                break
            count += 1
            size_bytes += entry.size
        if count == len(entries):
            taken, segment.entries = entries, []
        elif from_end:
            taken, segment.entries = entries[-count:], entries[:-count]
        else:
            taken, segment.entries = entries[:count], entries[count:]
        removed.visits += len(taken)
        self._remove(segment, taken, removed)

    def _remove(self, segment: Segment, taken: list[Entry], removed: Removed) -> None:
        holder = segment.holder
        size_bytes = 0
        for entry in taken:
            self._forget(segment, entry)
            entry.holder = None
            if not entry.cached:  # Invalidated since the pass looked at its segment.
                continue
            del holder.entries[entry.entry_id]
            entry.cached = False
            size_bytes += entry.size
            removed.entries.append(entry)
        holder.size_bytes -= size_bytes
        removed.size_bytes += size_bytes
        self._slots -= len(taken)
        if taken is segment.entries or not segment.entries:
            segment.entries = []
            self._close(segment)

    # Housekeeping

    def _close(self, segment: Segment) -> None:
        """It takes in no more entries."""
        if self._open.get(segment.holder) is segment:
            del self._open[segment.holder]

    def drop_invalidated(self) -> None:
        for segment in (*self._kept, *self._segments):
            self._tidy(segment)


def _visits(segment: Segment) -> int:
    """A look at a segment costs as much as looking at so many single entries."""
    return 10 + len(segment.entries) // 4
