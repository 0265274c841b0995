"""Claims: who will read a segment, found out when a pass comes by, by where the readers of its log stand."""

from __future__ import annotations

from typing import Final

from broker.entry_cache.active_cursors import LOOKS_PER_VIEW
from broker.entry_cache.policies.magnetar.segment import Claim, Segment
from broker.entry_cache.policies.magnetar.segment_queue import SegmentQueue
from broker.entry_cache.policies.policy import Removed
from broker.entry_cache.range_cache import CachedLog
from broker.entry_cache.reader_view import NOBODY, ReaderView

VISITS_PER_VIEW: Final = 25
"""What it costs to ask a log for its readers, besides one visit for each that is looked at."""


class Claims:
    __slots__ = ("_queue", "_views", "patience_ns")

    def __init__(self, queue: SegmentQueue) -> None:
        self._queue = queue
        self.patience_ns = 0
        """For how long a cursor that does not move counts as one that gets on."""
        self._views: dict[CachedLog, ReaderView] = {}
        """Of the slice under way."""

    def view(
        self, segment: Segment, now_ns: int, removed: Removed, looks_max: int = LOOKS_PER_VIEW
    ) -> ReaderView:
        """Of the segment's log, once for a slice; it is charged to the slice."""
        log = segment.holder.log
        view = self._views.get(log)
        if view is None:
            readers = log.readers
            if readers is None:
                view = NOBODY
            else:
                looks = readers.looks
                view = readers.view(now_ns, self.patience_ns, looks_max)
                removed.visits += VISITS_PER_VIEW + readers.looks - looks
            self._views[log] = view
        return view

    def end_slice(self) -> None:
        """The readers move on."""
        self._views.clear()

    def claim(self, segment: Segment, view: ReaderView, now_ns: int) -> tuple[Claim, bool]:
        """The strongest claim, and whether it holds without an end. That of a replay does not: an entry that is
        acknowledged while it waits is never asked for."""
        claim = segment.claim(view, now_ns, self.patience_ns)
        if claim is not Claim.EXPECTED and self._queue.waiting and segment.awaited_by_replay():
            return Claim.EXPECTED, False
        return claim, claim is Claim.EXPECTED
