"""LogReaders: the knowledge of the policy `magnetar` of one log's cursors, beyond their positions.

PIP-430 counts expected reads at each entry. This policy asks the cursors instead: which of them get on, which have
stopped, and which left a short while ago and may come back. Positions are exact at every moment. No cursor tells when
it stops or how fast it reads, so each view looks at `looks_max` cursors, in turns: a view costs no more with ten
thousand cursors than with a thousand. Until a cursor was looked at, the policy keeps entries rather than removes them.

A `LogReaders` is the watcher of the log's `ActiveCursors`, attached by the policy when the managed ledger is opened.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from itertools import islice
from typing import Final

from entry_cache.active_cursors import ActiveCursors, CursorPlace, count_to
from entry_cache.cursor_watcher import AcknowledgingCursor
from entry_cache.policies.magnetar.reader_view import NO_READERS, ReaderView
from entry_cache.policies.magnetar.reading_cursor import SPEED_GUESS, DepartedCursor, ReadingCursor
from entry_cache.policy import NO_LIMIT
from foundation.model.position import EARLIEST, LATEST, Position

LOOKS_PER_VIEW: Final = 1000
"""Cursors that take 1 to 2 ms to look at."""

REMOVED_KEPT: Final = 64
"""Scan queues may hold removed cursors; they are compacted when this many more are removed than active."""


class LogReaders:
    """A `CursorWatcher` that makes views of the log's readers for the passes of `magnetar`."""

    __slots__ = (
        "_acknowledged_by_slow",
        "_acknowledged_by_slow_so_far",
        "_active",
        "_cursors",
        "_departed",
        "_going",
        "_last_view",
        "_left_in_round",
        "_look_soon",
        "_now_ns",
        "_removed_in_round",
        "_returning",
        "_round",
        "_stopped",
        "_unseen",
        "_version",
        "looks",
    )

    def __init__(self, active: ActiveCursors) -> None:
        """Begins to watch these cursors, of which none may be active yet: reports begin with the next change."""
        assert not len(active), (
            "the watcher was attached after the first cursor, of which it would never hear"
        )
        self._active = active
        self._cursors: dict[str, ReadingCursor] = {}
        self._going: list[CursorPlace] | None = None
        """The places of the cursors that have not stopped, sorted; None while none has: then it is `active.places`."""
        self._stopped: list[CursorPlace] = []
        """The places of the cursors that have stopped, sorted."""
        self._departed: OrderedDict[str, DepartedCursor] = OrderedDict()
        """The cursors that left and may come back, in the order in which they left and are forgotten."""
        self._returning: list[CursorPlace] = []
        """The places of these, sorted."""
        self._version = 0
        """Grows when a cursor comes, leaves or moves."""
        self.looks = 0
        """Looks at cursors by all views since the start: the cost of views."""
        self._now_ns = 0
        """The time of the last view."""
        self._last_view = (NO_READERS, 0, -1)
        self._round: deque[ReadingCursor] = deque()
        """The scan queue: views look at these cursors in turns. Removed ones stay until a view meets them."""
        self._look_soon: deque[ReadingCursor] = deque()
        """Cursors that views look at first: new ones, and those that went back. All of them stand in `_round`, too."""
        self._removed_in_round = 0
        """How many cursors in `_round` were removed."""
        self._left_in_round = 0
        """Looks until the round under way has met all cursors."""
        self._unseen = 0
        """Looks until all cursors were seen as they are, if none moves."""
        self._acknowledged_by_slow = LATEST
        """All cursors have acknowledged everything up to here, as the last round found."""
        self._acknowledged_by_slow_so_far = LATEST
        """The same, of the cursors that the round under way has met."""

    # Reports of the active cursors

    def added(self, name: str, cursor: AcknowledgingCursor | None) -> None:
        """A cursor became active, or reports again that it is; `moved` may follow."""
        reading = self._cursors.get(name)
        if reading is None:
            reading = self._cursors[name] = ReadingCursor(name)
            self._round.append(reading)
        self._version += 1
        self.forgotten(name)
        if cursor is not None:
            reading.of_log = cursor
        self._look_soon_at(reading)

    def moved(self, name: str, before: Position | None, position: Position | None) -> None:
        """Notes a cursor's new position. A cursor that moves has not stopped."""
        self._version += 1
        if self._going is not None:
            if before is not None:
                place = (before[0], before[1], name)
                cursor = self._cursors[name]
                side = self._stopped if cursor.stopped else self._going
                cursor.stopped = False
                del side[bisect_left(side, place)]
            if position is not None:
                insort(self._going, (position[0], position[1], name))
            if not self._stopped:
                self._going = None
        if before is not None and position is not None and position < before:
            self._look_soon_at(self._cursors[name])

    def removed(self, name: str, now_ns: int) -> None:
        """Notes that a cursor left. It is expected back for a while."""
        cursor = self._cursors.pop(name)
        self._version += 1
        continue_ns = self._active.continue_caching_ns
        if cursor.of_log is not None and continue_ns > 0:
            departed = DepartedCursor(name, cursor.of_log.mark_delete_position, now_ns)
            self._departed[name] = departed
            insort(self._returning, departed.place)
        cursor.removed = True
        cursor.of_log = None  # The whole cursor of the managed ledger would stay alive.
        self._removed_in_round += 1
        # Views drop removed cursors as they meet them. A log that no pass looks at has no views, so compact here.
        if self._removed_in_round > len(self._cursors) + REMOVED_KEPT:
            seen_next = islice(self._round, max(0, self._left_in_round))
            self._left_in_round = sum(not other.removed for other in seen_next)
            self._round = deque([other for other in self._round if not other.removed])
            self._look_soon = deque([other for other in self._look_soon if not other.removed])
            self._removed_in_round = 0

    def forgotten(self, name: str) -> None:
        """Ends the wait for a cursor. Ignored unless the cursor is expected back."""
        departed = self._departed.pop(name, None)
        if departed is not None:
            del self._returning[bisect_left(self._returning, departed.place)]
            self._version += 1

    # Readers to come

    def names_returning(self, position: Position, now_ns: int) -> tuple[str, ...]:
        """Returns the cursors that left and are expected back to begin at the position or before."""
        before = self._returning[: count_to(self._returning, position)]
        after_ns = now_ns - self._active.continue_caching_ns
        return tuple([place[2] for place in before if self._departed[place[2]].left_ns > after_ns])

    def expected_from(self, ledger_id: int, now_ns: int) -> int:
        """Returns the lowest entry id of the ledger that a reader is to come for; NO_LIMIT if none is.

        Readers are the active cursors, however slow, and those expected back. It changes nothing and passes by each
        departed cursor that is overdue, so call `forget_overdue` before when asking often.
        """
        slowest = self._active.slowest()
        departed, after_ns = self._departed, now_ns - self._active.continue_caching_ns
        back = next((place for place in self._returning if departed[place[2]].left_ns > after_ns), None)
        places = [place[:2] for place in (slowest, back) if place is not None]
        if not places or (first := min(places))[0] > ledger_id:
            return NO_LIMIT
        return first[1] if first[0] == ledger_id else 0

    def forget_overdue(self, now_ns: int, looks_max: int = LOOKS_PER_VIEW) -> int:
        """Forgets departed cursors that have not come back in time, `looks_max` at most; returns how many.

        Views depend on it, so a replay has to call it as often and at the same times as the broker.
        """
        forgotten, after_ns = 0, now_ns - self._active.continue_caching_ns
        while self._departed and forgotten < looks_max:
            departed = next(iter(self._departed.values()))
            if departed.left_ns > after_ns:
                break
            forgotten += 1
            self.forgotten(departed.place[2])
        return forgotten

    # Views

    def view(self, now_ns: int, patience_ns: int, looks_max: int = LOOKS_PER_VIEW) -> ReaderView:
        """Returns the readers as they stand, for one pass or a slice of it.

        A cursor that has not moved for `patience_ns`, as far as earlier views can tell, has stopped. While no cursor
        moves, a view serves again for up to a tenth of `patience_ns`. It looks at `looks_max` cursors at most.
        """
        view, taken_ns, version = self._last_view
        if version == self._version and now_ns - taken_ns <= patience_ns // 10 and self._unseen <= 0:
            return view
        if version != self._version:
            self._unseen = len(self._round)
        self._now_ns = now_ns
        self.looks += self.forget_overdue(now_ns, looks_max)
        self._look_around(now_ns, patience_ns, looks_max)
        going = self._active.places if self._going is None else self._going
        view = ReaderView(going, self._returning, self._stopped, self._acknowledged_by_all(), self._speed_of)
        self._last_view = (view, now_ns, self._version)
        return view

    def _look_around(self, now_ns: int, patience_ns: int, looks_max: int) -> None:
        """Looks at the next cursors of the round, and before them at those that are to be looked at soon."""
        looks = min(looks_max, len(self._round))
        if looks == len(self._round):  # This view meets all cursors, so nothing of earlier rounds is needed.
            self._begin_round()
            self._acknowledged_by_slow = LATEST
            while self._look_soon:
                self._look_soon.popleft().look_soon = False
        while self._look_soon and looks:
            looks -= 1
            cursor = self._look_soon.popleft()
            cursor.look_soon = False
            self._look_at(cursor, now_ns, patience_ns)
        for _ in range(looks):
            cursor = self._round.popleft()
            self._look_at(cursor, now_ns, patience_ns)
            if cursor.removed:
                self._removed_in_round -= 1
            else:
                self._round.append(cursor)
            self._unseen -= 1
            self._left_in_round -= 1
            if self._left_in_round <= 0:
                self._acknowledged_by_slow = self._acknowledged_by_slow_so_far
                self._begin_round()

    def _begin_round(self) -> None:
        self._left_in_round = len(self._round)
        self._acknowledged_by_slow_so_far = LATEST

    def _look_at(self, cursor: ReadingCursor, now_ns: int, patience_ns: int) -> None:
        """Measures the cursor's speed, finds out if it has stopped, and notes what it has acknowledged."""
        self.looks += 1
        if cursor.removed:
            return
        position = self._active.position(cursor.name)
        if position is None:
            return
        cursor.look(position, now_ns)
        if cursor.stopped is not (now_ns - cursor.moved_ns > patience_ns):
            self._change_sides(cursor, position)
        if cursor.of_log is not None:
            self._acknowledged_by_slow_so_far = min(
                self._acknowledged_by_slow_so_far, cursor.of_log.mark_delete_position
            )

    def _change_sides(self, cursor: ReadingCursor, position: Position) -> None:
        """Moves the place of a cursor that has stopped, or that has not after all by a longer patience."""
        if self._going is None:
            self._going = list(self._active.places)
        place = (*position, cursor.name)
        sides = (self._stopped, self._going) if cursor.stopped else (self._going, self._stopped)
        del sides[0][bisect_left(sides[0], place)]
        insort(sides[1], place)
        cursor.stopped = not cursor.stopped
        if not self._stopped:
            self._going = None

    def _look_soon_at(self, cursor: ReadingCursor) -> None:
        """Notes a cursor whose mark-delete position may be lower than that which all cursors have acknowledged."""
        if not cursor.look_soon:
            cursor.look_soon = True
            self._look_soon.append(cursor)

    def _acknowledged_by_all(self) -> Position:
        """Returns a position up to which all cursors have acknowledged; EARLIEST while one was not looked at."""
        if self._look_soon:
            return EARLIEST
        acknowledged = min(self._acknowledged_by_slow, self._acknowledged_by_slow_so_far)
        if self._returning:
            ledger_id, entry_id, _ = self._returning[0]
            acknowledged = min(acknowledged, Position(ledger_id, entry_id - 1))
        return acknowledged

    def _speed_of(self, name: str) -> float:
        """Returns entries per second. It looks at the cursor, so that one that has moved does not count as slow."""
        cursor = self._cursors.get(name)
        if cursor is None:
            return SPEED_GUESS
        position = self._active.position(name)
        if position is not None:
            cursor.look(position, self._now_ns)
        return cursor.speed(self._now_ns)
