"""The policy `magnetar`: ours. It keeps what will be read, by looking at where the readers stand.

Entries stand in the queue in segments, and a segment is judged as a whole by the positions of the log's cursors:

* expected: a cursor that gets on stands at or before it, or a replay waits for one of its entries. It stays as
  long as that is so. A cursor that has stopped protects for a while only, so that a dead one fills no cache.
* may return: somebody has read past it without acknowledging it, and would begin there again after a reconnect.
  It gets a number of extensions.
* nobody: it leaves when its time is over.

For want of room a pass looks at each segment once (`room.py`). What nobody comes for goes first, then what somebody may
return to, then what is expected, by the time at which it will be read (distance and speed of the readers behind it):
what is needed last goes first, so that a cache which is too small for a backlog still serves what fits. In each group
topics that hold more than their share come first. What stays keeps its place, its time and its extensions: a pass
charges no survivor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from broker.entry_cache.policies.magnetar.claims import Claims
from broker.entry_cache.policies.magnetar.room import Room, RoomPass
from broker.entry_cache.policies.magnetar.segment import Claim, Segment
from broker.entry_cache.policies.magnetar.segment_queue import SegmentQueue
from broker.entry_cache.policies.names import MAGNETAR
from broker.entry_cache.policies.policy import (
    EXPECTED_READS,
    MAY_RETURN,
    NO_LIMIT,
    MakeRoom,
    Removed,
    SizePass,
    positive,
)
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry

SEGMENTS_PER_TTL: Final = 20
"""A segment takes in entries for this part of the time to live, so its last entries leave that much early."""

ORDERS_PER_TTL: Final = 4
"""An order of victims serves for this part of the time to live at most."""

_CAUSES: Final = {Claim.EXPECTED: EXPECTED_READS, Claim.MAY_RETURN: MAY_RETURN}


class Magnetar:
    """A `Policy`. The counts at the entries are of replays alone."""

    __slots__ = (
        "_claims",
        "_queue",
        "_returns_max",
        "_room",
        "admit",
        "by_position",
        "make_room",
        "name",
        "requeues",
        "watched",
    )

    def __init__(self, settings: EntryCacheSettings) -> None:
        self.name = MAGNETAR
        self.requeues = {EXPECTED_READS: 0, MAY_RETURN: 0}
        self.watched = False
        self.by_position = True
        self._queue = SegmentQueue()
        self._claims = Claims(self._queue)
        self._room = Room(self._queue, self._claims)
        self.admit = self._queue.admit
        self.make_room: MakeRoom | None = self._room.make
        self.configure(settings)

    def configure(self, settings: EntryCacheSettings) -> None:
        self._queue.grain_ns = settings.ttl_ns // SEGMENTS_PER_TTL
        self._claims.patience_ns = settings.ttl_ns * max(0, settings.requeues_max)
        self._returns_max = settings.requeues_max
        self._room.order_ns = settings.ttl_ns // ORDERS_PER_TTL
        self._room.quota_bytes = settings.topic_quota_bytes
        self._room.size_bytes_max = settings.size_bytes_max

    def __len__(self) -> int:
        return self._queue.slots

    def __iter__(self) -> Iterator[Entry]:
        for segment in self._queue:
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

    def handed_over(self, entries: Iterable[Entry]) -> None:
        """The cursor has moved on, which is all there is to know."""

    def put_back(self, reader: int, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.cached:
                waiting = self._queue.waiting.setdefault(entry, set())
                waiting.add(reader)
                entry.expected_reads = len(waiting)

    kept_back = put_back
    """The cursor has moved past it all the same."""

    def taken_again(self, reader: int, entry: Entry) -> None:
        waiting = self._queue.waiting.get(entry)
        if waiting is not None:
            waiting.discard(reader)
            entry.expected_reads = len(waiting)
            if not waiting:
                del self._queue.waiting[entry]

    # Too old

    def remove_expired(self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        removed = Removed()
        threshold_ns = min(threshold_ns, now_ns)  # What is kept is queued now, and must not be met again.
        queue, claims = self._queue, self._claims
        while queue.segments:
            if removed.visits >= visits_max:
                removed.done = False
                break
            segment = queue.segments[0]
            if segment.queued_at_ns >= threshold_ns and any(entry.cached for entry in segment.entries):
                break
            queue.pop_oldest()
            removed.visits += segment.visits
            if not queue.tidy(segment):
                continue
            claim, for_sure = claims.claim(segment, view := claims.view(segment, now_ns, removed), now_ns)
            if claim is Claim.EXPECTED and not for_sure:
                others = segment.split_off_unawaited()
                if others is not None:
                    self._keep_or_remove(others, *claims.claim(others, view, now_ns), now_ns, removed)
            self._keep_or_remove(segment, claim, for_sure, now_ns, removed)
        claims.end_slice()
        self._room.forget_old_order(now_ns)
        return removed

    def _keep_or_remove(
        self, segment: Segment, claim: Claim, for_sure: bool, now_ns: int, removed: Removed
    ) -> None:
        if for_sure or (claim and segment.extensions < self._returns_max):
            segment.extensions += not for_sure
            segment.queued_at_ns = now_ns
            self._queue.segments.append(segment)
            self._note(segment, _CAUSES[claim], removed)
        else:
            self._queue.remove(segment, segment.entries, removed)

    def _note(self, segment: Segment, cause: str, removed: Removed) -> None:
        self.requeues[cause] += len(segment.entries)
        if self.watched:
            removed.requeued.setdefault(cause, []).extend(segment.entries)

    # Want of room

    def begin_size_pass(self, bytes_to_free: int) -> RoomPass:
        return RoomPass(positive(bytes_to_free))

    def free(self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        assert isinstance(size_pass, RoomPass)
        return self._room.free(size_pass, now_ns, visits_max)

    def abandon(self, size_pass: SizePass) -> None:
        self._queue.end_lap()

    # Looking at every slot

    def drop_invalidated(self) -> None:
        for segment in self._queue:
            self._queue.tidy(segment)
