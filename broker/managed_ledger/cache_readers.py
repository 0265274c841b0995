"""CacheReaders: which cursors of a log read, and what its entry cache is told of them.

By PIP-430 (`cacheEvictionByExpectedReadCount`, the default) an entry is cached with the number of readers that
are to come, and leaves by the removal queue alone. Without, the older rules hold: what stands before the slowest
active cursor is invalidated, and reads from storage fill the cache only for cursors that others follow closely.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.listener import CursorChange, Obstacle
from broker.entry_cache.observe.cache_events import BY_MARK_DELETE, COUNTS_READS
from broker.entry_cache.reader import Reader
from broker.managed_ledger.backlog_caching import followed_closely
from broker.managed_ledger.ground import Ground
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.model.entry import Entry
from broker.model.position import LATEST, Position


class ReadingCursor(Protocol):
    """What is looked at in a cursor that reports: who it is, where it stands, whether it counts."""

    name: str
    reader: Reader
    active: bool
    caches_reads: bool

    @property
    def read_position(self) -> Position: ...

    @property
    def mark_delete_position(self) -> Position: ...


class LaggingCursor(ReadingCursor, Protocol):
    """And how far it is behind."""

    @property
    def durable(self) -> bool: ...

    @property
    def backlog(self) -> int: ...


class CacheReaders:
    __slots__ = ("_cache", "_counted", "_ground", "_invalidating", "_slowest", "_track_mark_delete", "active")

    def __init__(self, ground: Ground, cache: EntryCache, settings: ManagedLedgerSettings) -> None:
        self._ground = ground
        self._cache = cache
        self._counted = settings.expected_reads
        self._track_mark_delete = settings.track_mark_delete
        continue_ns = settings.continue_caching_ns if settings.expected_reads else 0
        now_ns = ground.now_ns()
        self.active = ActiveCursors(continue_ns, now_ns)
        rules = COUNTS_READS * self._counted + BY_MARK_DELETE * self._track_mark_delete
        cache.attach_cursors(self.active, now_ns, rules)
        self._slowest: Position | None = None
        """As of the last invalidation that was asked for; only where expected reads are not counted."""
        self._invalidating = False

    # What cursors report

    def activated(self, cursor: ReadingCursor) -> None:
        position = self._tracked(cursor)
        self.active.add(cursor.name, position, lambda: cursor.mark_delete_position)
        self._note(CursorChange.ADDED, cursor, position)
        self._note(CursorChange.ACKNOWLEDGED, cursor, cursor.mark_delete_position)
        self._check_slowest()

    def deactivated(self, cursor: ReadingCursor) -> None:
        cursor.caches_reads = False
        self._leave(cursor)

    def moved(self, cursor: ReadingCursor, *, by_hit: bool = False) -> None:
        """An active cursor has another read position; `by_hit`: behind a run that it took from the cache."""
        if not self._track_mark_delete:
            self.active.update(cursor.name, cursor.read_position)
            self._check_slowest()
        if not by_hit:
            self._note(CursorChange.MOVED, cursor, cursor.read_position)

    def acknowledged(self, cursor: ReadingCursor) -> None:
        """An active cursor has another mark-delete position."""
        if self._track_mark_delete:
            self.active.update(cursor.name, cursor.mark_delete_position)
            self._check_slowest()
        self._note(CursorChange.ACKNOWLEDGED, cursor, cursor.mark_delete_position)

    def _tracked(self, cursor: ReadingCursor) -> Position:
        return cursor.mark_delete_position if self._track_mark_delete else cursor.read_position

    def _leave(self, cursor: ReadingCursor) -> None:
        now_ns = self._ground.now_ns()
        if self.active.remove(cursor.name, now_ns):
            self._note(CursorChange.LEFT, cursor, cursor.mark_delete_position, now_ns)
            self._check_slowest()

    def forget(self, cursor: ReadingCursor) -> None:
        """It was deleted: nobody comes back to where it stood."""
        self.active.forget(cursor.name)
        self._note(CursorChange.FORGOTTEN, cursor, cursor.mark_delete_position)

    def _note(
        self, change: CursorChange, cursor: ReadingCursor, position: Position, at_ns: int | None = None
    ) -> None:
        self._cache.listener.cursor_changed(change, self._cache, cursor.reader, position, at_ns)

    # What the cache is told

    def added(self, entries: list[Entry], now_ns: int) -> None:
        """Confirmed entries enter the cache while there are readers, or have just been some."""
        self._cache.listener.appended(self._cache, entries, now_ns)
        if self.active.should_cache_added(now_ns):
            expected = len(self.active) if self._counted else None
            self._cache.insert_run(entries, expected, now_ns)
        else:
            self._cache.not_cached(entries, Obstacle.NO_ACTIVE_CURSOR, now_ns)

    def at_or_before(self, cursor: ReadingCursor) -> int | None:
        """Active cursors that stand where this one does or before, itself included: so many are still to read
        what it reads from storage; None, which caches nothing, when it is not active. Where expected reads are
        not counted, 1 for a cursor that others follow."""
        if self._counted:
            return self.active.rank(cursor.name) if cursor.active else None
        return 1 if cursor.caches_reads else None

    def of_replay(self, cursor: ReadingCursor) -> int | None:
        """The one reader to come of an entry that is read for a replay."""
        wanted = cursor.active if self._counted else cursor.caches_reads
        return 1 if wanted else None

    # The older rules

    def check_backlogs(self, cursors: Iterable[LaggingCursor], settings: ManagedLedgerSettings) -> None:
        """Once a minute, where expected reads are not counted: a reader far behind does not count as one, and
        those of a like backlog cache what they read."""
        if self._counted:
            return
        backlogs = {cursor: cursor.backlog for cursor in cursors}
        followed = followed_closely(
            {cursor: backlog for cursor, backlog in backlogs.items() if cursor.durable},
            cursors_min=settings.backlog_cursors_min_for_caching,
            entries_min=settings.backlog_entries_min_for_caching,
            between_max=settings.backlog_between_cursors_max_for_caching,
        )
        for cursor, backlog in backlogs.items():
            cursor.caches_reads = cursor in followed
            if not cursor.active:
                continue
            if backlog > settings.cursor_backlogged_threshold:
                self._leave(cursor)
            elif cursor.name not in self.active:
                self.activated(cursor)

    def _check_slowest(self) -> None:
        """Ask for an invalidation if the slowest reader is another or elsewhere: one task at most per log."""
        if self._counted:
            return
        slowest = self.active.slowest()
        if slowest != self._slowest:
            self._slowest = slowest
            if not self._invalidating:
                self._invalidating = True
                self._ground.turn.confirm(self._invalidate)

    def _invalidate(self, now_ns: int) -> None:
        """Drop what no active reader needs: everything before the slowest, or all when there is none."""
        self._invalidating = False
        if self._cache.entries:
            self._cache.invalidate_before(LATEST if self._slowest is None else self._slowest)
