"""ReaderView: the readers of one log at one moment, as the policy `magnetar` looks at them.

PIP-430 counts expected reads at each entry. This policy asks positions instead: a cursor that reads on at or before a
position will come to it, and a cursor that has read past it without acknowledging it may come again. So no count has
to be lowered, and a cursor that leaves or comes back changes what is expected at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from entry_cache.active_cursors import CursorPlace, count_to
from foundation.model.position import LATEST, Position

LEDGER_ENTRIES_GUESS: Final = 50_000
"""Assumed entries of a ledger, for distances that reach into the next one."""

READERS_ASKED_MAX: Final = 8
"""The nearest readers whose time of arrival is computed; of many readers the others are ignored."""


class ReaderView:
    """The readers of one log, until one of them moves.

    It copies nothing, so making a view costs the same however many readers there are.
    """

    __slots__ = ("_going", "_returning", "_speed_of", "_stopped", "_unacknowledged", "slowest")

    def __init__(
        self,
        going: Sequence[CursorPlace],
        returning: Sequence[CursorPlace],
        stopped: Sequence[CursorPlace],
        unacknowledged: Position,
        speed_of: Callable[[str], float],
    ) -> None:
        """All places are sorted.

        `going` are cursors that get on, with a speed above 0 entries per second by `speed_of`; `returning` left and are
        expected back; `stopped` have not moved for a long time. Entries after `unacknowledged` were not acknowledged by
        all cursors.
        """
        self._going = going
        self._returning = returning
        # Only the lowest of the stopped cursors matters: each position at or after it waits for a stopped
        # cursor.
        self._stopped = stopped[0][:2] if stopped else LATEST
        self._unacknowledged = unacknowledged
        self._speed_of = speed_of
        first = going[0] if going else None
        # A departed cursor counts like one that gets on: it begins again at its mark-delete position after a
        # reconnect.
        if returning and (first is None or returning[0] < first):
            first = returning[0]
        self.slowest: Position | None = None if first is None else Position(first[0], first[1])
        """The lowest position of a cursor that gets on or is expected back; None if there is none."""

    def is_expected(self, position: tuple[int, int]) -> bool:
        """Returns True if a reader that gets on will come to the position."""
        return self.slowest is not None and self.slowest <= position

    def has_stopped_before(self, position: tuple[int, int]) -> bool:
        """Returns True if a cursor has stopped at the position or before."""
        return self._stopped <= position

    def may_return_to(self, position: tuple[int, int]) -> bool:
        """Returns True if a cursor has not acknowledged the position, as far as views have looked."""
        return position > self._unacknowledged

    def due_us(self, position: tuple[int, int]) -> int | None:
        """Returns the microseconds until the first reader is likely to come to the position; None if none will."""
        soonest = [
            # One is added because a reader that stands at the entry has still to read it; 0 would call it read
            # already.
            (_distance(place, position) + 1) / self._speed_of(place[2])
            for places in (self._going, self._returning)
            for place in _nearest(places, position)
        ]
        return int(min(soonest) * 1e6) if soonest else None


def _nearest(places: Sequence[CursorPlace], position: tuple[int, int]) -> Sequence[CursorPlace]:
    """Returns the places that reach the position first if all readers are equally fast."""
    if not places:
        return ()
    end = count_to(places, position)
    # The list is sorted by position, so the last places at or before the position are the nearest ones.
    return places[max(0, end - READERS_ASKED_MAX) : end]


def _distance(reader: CursorPlace, position: tuple[int, int]) -> int:
    """Returns how many entries the reader is away; a guess across ledgers, whose lengths are not known here."""
    ledger_id, entry_id = position
    if reader[0] == ledger_id:
        return entry_id - reader[1]
    # Ledger ids are not consecutive for one log, so ledgers in between cannot be counted; one is assumed.
    return entry_id + max(0, LEDGER_ENTRIES_GUESS - reader[1])


# With LATEST as the last acknowledged position no entry has a claim, so a log without readers is evicted first.
NO_READERS: Final = ReaderView((), (), (), LATEST, lambda name: 1.0)
"""The view of a log without readers."""
