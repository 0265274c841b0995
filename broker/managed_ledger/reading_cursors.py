"""ReadingCursors: the active cursors of a managed ledger, and the filling of its cache for them.

By PIP-430 (`cacheEvictionByExpectedReadCount`, the default) an entry is cached with the number of readers that are
to come, and an eviction pass removes it. With that setting off, Pulsar's older rules hold: entries before the slowest
active cursor are invalidated, and storage reads fill the cache only for cursors that others follow closely.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.managed_ledger.backlog_caching import followed_closely
from broker.managed_ledger.inflight_reads_limiter import ReadPermits
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.settings import ManagedLedgerSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.listener import CursorChange, Obstacle
from entry_cache.reader import Reader
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import LATEST, Position
from foundation.model.range_set import EntryRange


class CursorView(Protocol):
    """The view that parts of a managed ledger have of its cursors; implemented by `ManagedCursor`."""

    name: str
    """The subscription's name."""
    reader: Reader
    """The cursor as the cache knows it; hits and misses count for it. Its name is unique among all that read the log."""
    active: bool
    """A consumer reads through the cursor."""
    caches_reads: bool
    """By the older rules: its storage reads fill the cache. `check_backlogs` sets it."""

    @property
    def read_position(self) -> Position:
        """The next entry to read."""
        ...

    @property
    def mark_delete_position(self) -> Position:
        """The last position up to which every entry is acknowledged."""
        ...

    @property
    def durable(self) -> bool:
        """False for a cursor in memory: its reader accepts that old entries disappear, and it makes no reads cached."""
        ...

    @property
    def backlog(self) -> int:
        """Entries not acknowledged yet."""
        ...

    def range_to_read(self, entries_max: int, bytes_max: int) -> EntryRange | None:
        """Returns the range that a forward read begins with, None when nothing is left."""
        ...

    def forward_read_ended(
        self, entries: list[Entry], permits: ReadPermits, error: BrokerError | None
    ) -> None:
        """Receives the result of a forward read; the entries, if any, reach the read position."""
        ...

    def skip_lost(self, positions: Iterable[tuple[int, int]]) -> bool:
        """Acknowledges those of the positions that are lost, if the settings say so; returns True for any."""
        ...


class ReadingCursors:
    """Knows the active cursors and fills the cache for them.

    Which rules hold is fixed when the managed ledger is opened; the setting cannot change at run time.
    """

    __slots__ = (
        "_cache",
        "_counted",
        "_environment",
        "_hears_appends",
        "_hears_cursors",
        "_invalidation_due",
        "_slowest",
        "_track_mark_delete",
        "active",
    )

    def __init__(self, context: LedgerContext) -> None:
        settings = context.settings
        self._environment = context.environment
        self._cache = cache = context.cache
        self._counted = settings.expected_reads
        self._track_mark_delete = settings.track_mark_delete
        # The grace time is part of expected reads (PIP-430); the older rules stop caching with the last cursor.
        continue_ns = settings.continue_caching_ns if settings.expected_reads else 0
        now_ns = self._environment.now_ns()
        self.active = ActiveCursors(continue_ns, now_ns)
        """Their positions; the policy `magnetar` looks at them too."""
        cache.attach_cursors(
            self.active, now_ns, counts_reads=self._counted, by_mark_delete=self._track_mark_delete
        )
        # Asked once: both events come with each message, and only a recorder listens to them.
        self._hears_appends = cache.listener.hears("appended")
        self._hears_cursors = cache.listener.hears("cursor_changed")
        self._slowest: Position | None = None
        """As of the last invalidation that was asked for; used with the older rules only."""
        self._invalidation_due = False

    # Called by cursors

    def activated(self, cursor: CursorView) -> None:
        """Caches entries for this cursor from now on."""
        position = self._tracked(cursor)
        self.active.add(cursor.reader.name, position, cursor)
        # A replay of the access record needs both positions to rebuild the order of the cursors.
        self._note(CursorChange.ADDED, cursor, position)
        self._note(CursorChange.ACKNOWLEDGED, cursor, cursor.mark_delete_position)
        self._check_slowest()

    def deactivated(self, cursor: CursorView) -> None:
        """The last consumer of this cursor has disconnected."""
        cursor.caches_reads = False
        self._leave(cursor)

    def moved(self, cursor: CursorView, *, by_hit: bool = False) -> None:
        """An active cursor has another read position.

        `by_hit`: it stands after a run that it read from the cache, whose event says so already.
        """
        if not self._track_mark_delete:
            self.active.update(cursor.reader.name, cursor.read_position)
            if not self._counted:
                self._check_slowest()
        if not by_hit:
            self._note(CursorChange.MOVED, cursor, cursor.read_position)

    def acknowledged(self, cursor: CursorView) -> None:
        """An active cursor has another mark-delete position."""
        if self._track_mark_delete:
            self.active.update(cursor.reader.name, cursor.mark_delete_position)
            self._check_slowest()
        if self._hears_cursors:
            self._note(CursorChange.ACKNOWLEDGED, cursor, cursor.mark_delete_position)

    def _tracked(self, cursor: CursorView) -> Position:
        return cursor.mark_delete_position if self._track_mark_delete else cursor.read_position

    def _leave(self, cursor: CursorView) -> None:
        now_ns = self._environment.now_ns()
        if self.active.remove(cursor.reader.name, now_ns):
            self._note(CursorChange.LEFT, cursor, cursor.mark_delete_position, now_ns)
            self._check_slowest()

    def forget(self, cursor: CursorView) -> None:
        """The cursor was deleted, so it will not return to its position."""
        self.active.forget(cursor.reader.name)
        self._note(CursorChange.FORGOTTEN, cursor, cursor.mark_delete_position)

    def _note(
        self, change: CursorChange, cursor: CursorView, position: Position, at_ns: int | None = None
    ) -> None:
        self._cache.listener.cursor_changed(change, self._cache, cursor.reader, position, at_ns)

    # Filling the cache

    def added(self, entries: list[Entry], now_ns: int) -> None:
        """Caches confirmed entries while a cursor is active, or just was."""
        if self._hears_appends:
            self._cache.listener.appended(self._cache, entries, now_ns)
        active = self.active.count
        if active or self.active.should_cache_added(now_ns):
            expected = active if self._counted else None
            self._cache.insert_run(entries, expected, now_ns)
        else:
            self._cache.not_cached(entries, Obstacle.NO_ACTIVE_CURSOR, now_ns)

    def at_or_before(self, cursor: CursorView) -> int | None:
        """Returns how many active cursors stand at this one or before, itself included.

        So many are still to read the entries that it reads from storage. None, which caches nothing, when it is not
        active. By the older rules: 1 for a cursor that others follow closely.
        """
        if self._counted:
            return self.active.rank(cursor.reader.name) if cursor.active else None
        return 1 if cursor.caches_reads else None

    def of_redelivery(self, cursor: CursorView) -> int | None:
        """Returns the expected reads of an entry read for a redelivery: only this cursor reads it."""
        wanted = cursor.active if self._counted else cursor.caches_reads
        return 1 if wanted else None

    # The older rules

    def check_backlogs(self, cursors: Iterable[CursorView], settings: ManagedLedgerSettings) -> None:
        """Applies the older rules to cursors with a backlog.

        A cursor with a large backlog does not count as active; cursors of similar backlog cache what they read.
        Called once a minute; does nothing unless the older rules hold.
        """
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
            elif cursor.reader.name not in self.active:
                self.activated(cursor)

    def _check_slowest(self) -> None:
        """Asks for an invalidation if the slowest position has changed."""
        if self._counted:
            return
        slowest = self.active.slowest()
        if slowest != self._slowest:
            self._slowest = slowest
            if not self._invalidation_due:
                self._invalidation_due = True
                # Once per turn, however many cursors moved in it.
                self._environment.turn.confirm(self._invalidate)

    def _invalidate(self, now_ns: int) -> None:
        """Invalidates entries before the slowest active cursor; all entries when there is none."""
        self._invalidation_due = False
        # An empty cache has nothing to invalidate, and an access record needs no event of that.
        if self._cache.entries:
            self._cache.invalidate_before(LATEST if self._slowest is None else self._slowest)
