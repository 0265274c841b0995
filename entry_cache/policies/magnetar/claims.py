"""Claims: finds the claim on a segment when a pass comes to it, from the positions of its log's readers."""

from __future__ import annotations

from typing import Final

from entry_cache.policies.magnetar.log_readers import LOOKS_PER_VIEW, LogReaders
from entry_cache.policies.magnetar.reader_view import NO_READERS, ReaderView
from entry_cache.policies.magnetar.segment import CacheSegment, Claim
from entry_cache.policies.magnetar.segment_queue import SegmentQueue
from entry_cache.policy import Removed
from entry_cache.range_cache import CachedLog

VISITS_PER_VIEW: Final = 25
"""The cost of a view of a log's readers in visits, besides one visit for each cursor that it looks at."""


class Claims:
    """Asks each log for its readers once in a slice of a pass."""

    def __init__(self, queue: SegmentQueue) -> None:
        """`queue` says if any entry waits for a redelivery."""
        self._queue = queue
        self.patience_ns = 0
        """A cursor that does not move for longer has stopped."""
        self._views: dict[CachedLog, ReaderView] = {}
        """The views of the running slice."""

    def view(
        self, segment: CacheSegment, now_ns: int, removed: Removed, looks_max: int = LOOKS_PER_VIEW
    ) -> ReaderView:
        """Returns the readers of the segment's log, made once in a slice; its cost is added to `removed.visits`."""
        log = segment.holder.log
        # One view for all segments of the log: finding the slowest reader anew for each segment would make a
        # pass cost segments times cursors.
        view = self._views.get(log)
        if view is None:
            readers = None if log.cursors is None else log.cursors.watcher
            # A managed ledger attaches its cursors when it is opened. Before that, and for internal logs
            # without cursors, no reader is known.
            if not isinstance(readers, LogReaders):
                view = NO_READERS
            else:
                looks = readers.looks
                view = readers.view(now_ns, self.patience_ns, looks_max)
                # Looks are charged as visits, so a slice over many logs with many cursors ends in time too.
                removed.visits += VISITS_PER_VIEW + readers.looks - looks
            self._views[log] = view
        return view

    def end_slice(self) -> None:
        """Forgets the views: the readers move on between two slices."""
        self._views.clear()

    def claim(self, segment: CacheSegment, view: ReaderView, now_ns: int) -> tuple[Claim, bool]:
        """Returns the strongest claim, and True if it may hold for ever.

        The claim of a redelivery may not: an entry that is acknowledged while it waits is never asked for.
        """
        claim = segment.claim(view, now_ns, self.patience_ns)
        # `waiting` is empty on nearly every broker. Testing it first saves a walk over all entries of the
        # segment.
        if claim is not Claim.EXPECTED and self._queue.waiting and segment.waits_for_redelivery():
            return Claim.EXPECTED, False
        return claim, claim is Claim.EXPECTED
