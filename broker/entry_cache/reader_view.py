"""ReaderView: the readers of one log at one moment, as a policy that decides by positions looks at them.

PIP-430 counts reads at an entry; a log can be asked instead. Whoever reads on at or before a position will come
to it, and whoever has read past it without acknowledging it may come again. So nothing has to be counted
down, a cursor that leaves takes its claims along, and one that comes back brings them with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from broker.model.position import LATEST, Position

LEDGER_ENTRIES_GUESS: Final = 50_000
"""Entries that a ledger is taken to have, for distances that go past its end."""

READERS_ASKED_MAX: Final = 8
"""Of many readers only so many, the nearest, are asked how soon they come."""

Place = tuple[int, int, str]
"""(ledger id, entry id, name): where a reader stands, in lists that are sorted by it."""


class ReaderView:
    """It copies nothing, so that making one costs the same however many readers there are: it holds until one of
    them moves."""

    __slots__ = ("_going", "_returning", "_speed_of", "_stopped", "_unacknowledged", "slowest")

    def __init__(
        self,
        going: Sequence[Place],
        returning: Sequence[Place],
        stopped: Sequence[Place],
        unacknowledged: Position,
        speed_of: Callable[[str], float],
    ) -> None:
        """`going`: cursors that get on, each of which has a speed in entries a second, above 0; `returning`: those that
        left and are expected back; `stopped`: those that have not moved for a long time; what stands behind
        `unacknowledged` has not been acknowledged by everybody."""
        self._going = going
        self._returning = returning
        self._stopped = stopped[0][:2] if stopped else LATEST
        self._unacknowledged = unacknowledged
        self._speed_of = speed_of
        first = going[0] if going else None
        if returning and (first is None or returning[0] < first):
            first = returning[0]
        self.slowest: Position | None = None if first is None else Position(first[0], first[1])
        """Of those that get on, and those expected back."""

    def is_expected(self, position: tuple[int, int]) -> bool:
        """Whether a reader who gets on will come to the position."""
        return self.slowest is not None and self.slowest <= position

    def has_stopped_before(self, position: tuple[int, int]) -> bool:
        return self._stopped <= position

    def may_return_to(self, position: tuple[int, int]) -> bool:
        return position > self._unacknowledged

    def due_us(self, position: tuple[int, int]) -> int | None:
        """In how many microseconds the first reader who gets on is likely to come to the position."""
        soonest = [
            (_distance(place, position) + 1) / self._speed_of(place[2])
            for places in (self._going, self._returning)
            for place in _nearest(places, position)
        ]
        return int(min(soonest) * 1e6) if soonest else None


def count_to(places: Sequence[Place], position: tuple[int, int]) -> int:
    """How many stand at the position or before."""
    return bisect_left(places, (position[0], position[1] + 1))


def _nearest(places: Sequence[Place], position: tuple[int, int]) -> Sequence[Place]:
    """Those that come to the position first, if all are equally fast."""
    if not places:
        return ()
    end = count_to(places, position)
    return places[max(0, end - READERS_ASKED_MAX) : end]


def _distance(reader: Place, position: tuple[int, int]) -> int:
    """How many entries the reader is away, as well as that can be told without the log's list of ledgers."""
    ledger_id, entry_id = position
    if reader[0] == ledger_id:
        return entry_id - reader[1]
    return entry_id + max(0, LEDGER_ENTRIES_GUESS - reader[1])


NOBODY: Final = ReaderView((), (), (), LATEST, lambda name: 1.0)
