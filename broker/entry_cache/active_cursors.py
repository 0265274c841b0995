"""ActiveCursors: which cursors of a managed ledger are readers to come, and how many are behind a position.

The number of active cursors is the count of expected reads of a new entry; the rank of a cursor, the number
of cursors at its position or before, is the count for entries that it reads from storage (PIP-430). Ranks
are exact at every moment: positions stand in sorted lists, and nothing is put off.

A policy that decides by positions instead of counts looks at `view`: who reads on, who has stopped, who may come
back. Where somebody stands is always exact there, too. Who has stopped, and what everybody has acknowledged, nobody
tells: each view looks at so many cursors, in turns, so that it costs no more with ten thousand than with a thousand.
What it has not seen yet errs on the side of keeping.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.entry_cache.active_cursor import SPEED_GUESS, Acknowledged, ActiveCursor, DepartedCursor
from broker.entry_cache.policies.policy import NO_LIMIT
from broker.entry_cache.reader_view import NOBODY, Place, ReaderView, count_to
from broker.model.position import EARLIEST, LATEST, Position

NAMES_KEPT: Final = 100
"""An event names so many readers at most, so that it costs and keeps no more with ten thousand."""

LOOKS_PER_VIEW: Final = 1000
"""Cursors that take 1 to 2 ms to look at."""

GONE_KEPT: Final = 64
"""Cursors that are gone may stand in the lines of those to look at, so many more than there are others."""


class ActiveCursors:
    __slots__ = (
        "_changed_at_ns",
        "_continue_caching_ns",
        "_cursors",
        "_departed",
        "_going",
        "_gone",
        "_last_view",
        "_left_in_round",
        "_look_soon",
        "_names",
        "_now_ns",
        "_returning",
        "_round",
        "_stopped",
        "_unacknowledged",
        "_unacknowledged_so_far",
        "_unseen",
        "_version",
        "looks",
    )

    def __init__(self, continue_caching_ns: int, now_ns: int) -> None:
        """`continue_caching_ns`: how long new entries are cached after the last cursor left, and a cursor that
        left is expected back; 0 or less = not."""
        self._continue_caching_ns = continue_caching_ns
        self._changed_at_ns = now_ns
        self._cursors: dict[str, ActiveCursor] = {}
        self._going: list[Place] = []
        """Of those with a position that have not stopped, sorted."""
        self._stopped: list[Place] = []
        """Of the others with a position, sorted."""
        self._names: tuple[str, ...] | None = None
        """The first of them, once somebody has asked."""
        self._departed: OrderedDict[str, DepartedCursor] = OrderedDict()
        """In the order in which they left, and are expected no more."""
        self._returning: list[Place] = []
        """Of these, sorted."""
        self._version = 0
        """Grows when a cursor comes, goes or moves."""
        self.looks = 0
        """At cursors, by all views since the start: what views cost."""
        self._now_ns = now_ns
        """Of the last view."""
        self._last_view = (NOBODY, 0, -1)
        self._round: deque[ActiveCursor] = deque()
        """Whom views look at next; some may be gone."""
        self._look_soon: deque[ActiveCursor] = deque()
        """Whom they look at first: the new ones, and those that went back. Whoever is gone stands in the other line
        too."""
        self._gone = 0
        """Of `_round`, how many are gone."""
        self._left_in_round = 0
        self._unseen = 0
        """Looks until all have been seen as they are, if nobody moves."""
        self._unacknowledged = LATEST
        """Before what was acknowledged by each, when the last round ended."""
        self._unacknowledged_so_far = LATEST
        """Likewise, of those seen in the round under way."""

    def __len__(self) -> int:
        """Cursors, with those that have no position."""
        return len(self._cursors)

    def __contains__(self, name: str) -> bool:
        return name in self._cursors

    def __iter__(self) -> Iterator[str]:
        return iter(self._cursors)

    def add(self, name: str, position: Position | None, acknowledged: Acknowledged | None = None) -> None:
        """A cursor becomes active; without a position it counts as a reader but has no rank. `acknowledged`
        says where it would read again from if it came back."""
        cursor = self._cursors.get(name)
        if cursor is None:
            cursor = self._cursors[name] = ActiveCursor(name)
            self._round.append(cursor)
        self._version += 1
        self._names = None
        self.forget(name)
        if acknowledged is not None:
            cursor.acknowledged = acknowledged
        self._look_soon_at(cursor)
        self.update(name, position)

    def update(self, name: str, position: Position | None) -> None:
        """The cursor has moved, forward or back, or lost its position. Ignored unless it is active."""
        cursor = self._cursors.get(name)
        if cursor is None:
            return
        before = cursor.position
        if before == position:
            return
        cursor.position = position
        self._version += 1
        if before is not None:
            place = (before[0], before[1], name)
            if cursor.stopped:
                cursor.stopped = False
                del self._stopped[bisect_left(self._stopped, place)]
            else:
                del self._going[bisect_left(self._going, place)]
        if position is not None:
            insort(self._going, (position[0], position[1], name))
            if before is not None and position < before:
                self._look_soon_at(cursor)

    def remove(self, name: str, now_ns: int) -> bool:
        """The cursor is no longer a reader; whether it was."""
        cursor = self._cursors.get(name)
        if cursor is None:
            return False
        self.update(name, None)
        del self._cursors[name]
        self._version += 1
        self._names = None
        if cursor.acknowledged is not None and self._continue_caching_ns > 0:
            departed = DepartedCursor(name, cursor.acknowledged(), now_ns + self._continue_caching_ns)
            self._departed[name] = departed
            insort(self._returning, departed.place)
        self._changed_at_ns = now_ns
        self._let_go_of(cursor)
        return True

    def _let_go_of(self, cursor: ActiveCursor) -> None:
        """Views take whoever is gone out of the lines; where nobody asks for one, so that they do not grow for ever, it
        is done when there are many."""
        cursor.gone = True
        cursor.acknowledged = None  # It holds the whole cursor.
        self._gone += 1
        if self._gone > len(self._cursors) + GONE_KEPT:
            seen_next = islice(self._round, max(0, self._left_in_round))
            self._left_in_round = sum(not other.gone for other in seen_next)
            self._round = deque([other for other in self._round if not other.gone])
            self._look_soon = deque([other for other in self._look_soon if not other.gone])
            self._gone = 0

    def forget(self, name: str) -> None:
        """The cursor will not come back: it was deleted. Ignored unless it has left."""
        departed = self._departed.pop(name, None)
        if departed is not None:
            del self._returning[bisect_left(self._returning, departed.place)]
            self._version += 1

    def position(self, name: str) -> Position | None:
        cursor = self._cursors.get(name)
        return None if cursor is None else cursor.position

    def rank(self, name: str) -> int:
        """How many cursors stand where this one does or before, itself included; 0 if it has no position."""
        position = self.position(name)
        return 0 if position is None else self.rank_at(position)

    def rank_at(self, position: Position) -> int:
        """How many cursors stand at `position` or before: so many will still read an entry there."""
        return count_to(self._going, position) + (count_to(self._stopped, position) if self._stopped else 0)

    def names_at_or_before(self, position: Position, names_max: int = NAMES_KEPT) -> tuple[str, ...]:
        """Who will read an entry there, `names_max` of them at most; those without a position count while there are no
        more cursors than that."""
        sides = (self._going, self._stopped)
        if names_max == NAMES_KEPT and all(not places or places[-1][:2] <= position for places in sides):
            if self._names is None:
                self._names = tuple(islice(self._cursors, NAMES_KEPT))
            return self._names
        if len(self._cursors) <= names_max:
            return tuple(
                [
                    cursor.name
                    for cursor in self._cursors.values()
                    if cursor.position is None or cursor.position <= position
                ]
            )
        # Of very many the first to stand before it: looking through all would hold up each insert.
        places = sorted(
            [place for side in sides for place in side[: min(count_to(side, position), names_max)]]
        )
        return tuple([place[2] for place in places[:names_max]])

    def names_returning(self, position: Position, now_ns: int) -> tuple[str, ...]:
        """Who has left, and is expected back to begin at the position or before."""
        before = self._returning[: count_to(self._returning, position)]
        return tuple([place[2] for place in before if self._departed[place[2]].until_ns > now_ns])

    def slowest(self) -> Position | None:
        first = min([places[0] for places in (self._going, self._stopped) if places], default=None)
        return None if first is None else Position(first[0], first[1])

    def expected_from(self, ledger_id: int, now_ns: int) -> int:
        """The lowest entry id of the ledger that a reader is to come for: one that is active, however slow, or one that
        has left and is expected back. NO_LIMIT where nobody is. It passes by each cursor that has not come back in time
        and changes nothing; whoever asks often calls `expect_no_more` before."""
        slowest = self.slowest()
        departed = self._departed
        back = next((place for place in self._returning if departed[place[2]].until_ns > now_ns), None)
        places = [place[:2] for place in (slowest, back) if place is not None]
        if not places or (first := min(places))[0] > ledger_id:
            return NO_LIMIT
        return first[1] if first[0] == ledger_id else 0

    def expect_no_more(self, now_ns: int, looks_max: int = LOOKS_PER_VIEW) -> int:
        """Forget those that have not come back in time; of very many a part, and the others next time. How many these
        were. Views take notice, so that a replay has to do it as often and at the same times."""
        forgotten = 0
        while self._departed and forgotten < looks_max:
            departed = next(iter(self._departed.values()))
            if departed.until_ns > now_ns:
                break
            forgotten += 1
            self.forget(departed.place[2])
        return forgotten

    def should_cache_added(self, now_ns: int) -> bool:
        """Whether a new entry is worth a place: somebody reads, or somebody did a short while ago."""
        return bool(self._cursors) or now_ns - self._changed_at_ns < self._continue_caching_ns

    # For policies that decide by positions

    def view(self, now_ns: int, patience_ns: int, looks_max: int = LOOKS_PER_VIEW) -> ReaderView:
        """The readers as they stand, for one pass or a slice of it. Who has not moved for `patience_ns`, as far
        as earlier views can tell, has stopped. Where no cursor has moved since the last view, that one may serve
        again for up to a tenth of `patience_ns`. It looks at `looks_max` cursors at most."""
        view, taken_ns, version = self._last_view
        if version == self._version and now_ns - taken_ns <= patience_ns // 10 and self._unseen <= 0:
            return view
        if version != self._version:
            self._unseen = len(self._round)
        self._now_ns = now_ns
        self.looks += self.expect_no_more(now_ns, looks_max)
        self._look_around(now_ns, patience_ns, looks_max)
        view = ReaderView(
            self._going, self._returning, self._stopped, self._acknowledged_by_all(), self._speed_of
        )
        self._last_view = (view, now_ns, self._version)
        return view

    def _look_around(self, now_ns: int, patience_ns: int, looks_max: int) -> None:
        looks = min(looks_max, len(self._round))
        if looks == len(self._round):  # All of them, so nothing need be known from before.
            self._begin_round()
            self._unacknowledged = LATEST
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
            if cursor.gone:
                self._gone -= 1
            else:
                self._round.append(cursor)
            self._unseen -= 1
            self._left_in_round -= 1
            if self._left_in_round <= 0:
                self._unacknowledged = self._unacknowledged_so_far
                self._begin_round()

    def _begin_round(self) -> None:
        self._left_in_round = len(self._round)
        self._unacknowledged_so_far = LATEST

    def _look_at(self, cursor: ActiveCursor, now_ns: int, patience_ns: int) -> None:
        self.looks += 1
        if cursor.gone or cursor.position is None:
            return
        cursor.look(now_ns)
        if cursor.stopped is not (now_ns - cursor.moved_ns > patience_ns):
            self._change_sides(cursor)
        if cursor.acknowledged is not None:
            self._unacknowledged_so_far = min(self._unacknowledged_so_far, cursor.acknowledged())

    def _change_sides(self, cursor: ActiveCursor) -> None:
        """It has stopped; or it has not after all, by a longer patience."""
        assert cursor.position is not None
        place = (*cursor.position, cursor.name)
        sides = (self._stopped, self._going) if cursor.stopped else (self._going, self._stopped)
        del sides[0][bisect_left(sides[0], place)]
        insort(sides[1], place)
        cursor.stopped = not cursor.stopped

    def _look_soon_at(self, cursor: ActiveCursor) -> None:
        """What it has acknowledged may be less than what was acknowledged by all."""
        if not cursor.look_soon:
            cursor.look_soon = True
            self._look_soon.append(cursor)

    def _acknowledged_by_all(self) -> Position:
        """At least so much; nothing is known while somebody has not been seen."""
        if self._look_soon:
            return EARLIEST
        acknowledged = min(self._unacknowledged, self._unacknowledged_so_far)
        if self._returning:
            ledger_id, entry_id, _ = self._returning[0]
            acknowledged = min(acknowledged, Position(ledger_id, entry_id - 1))
        return acknowledged

    def _speed_of(self, name: str) -> float:
        """Whoever is asked is looked at, so that nobody who has moved counts as slow."""
        cursor = self._cursors.get(name)
        if cursor is None:
            return SPEED_GUESS
        cursor.look(self._now_ns)
        return cursor.speed(self._now_ns)
