"""ReaderView: the readers of one log at one moment, as a policy that decides by positions looks at them.

PIP-430 counts reads at an entry; a log can be asked instead. Whoever reads on at or before a position will come
to it, and whoever has read past it without acknowledging it may come again. So nothing has to be counted
down, a cursor that leaves takes its claims along, and one that comes back brings them with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.model.position import LATEST, Position

LEDGER_ENTRIES_GUESS: Final = 50_000
"""Entries that a ledger is taken to have, for distances that go past its end."""

READERS_ASKED_MAX: Final = 8
"""Of many readers only so many, the nearest, are asked how soon they come."""


class ReadingAt(NamedTuple):
    """A cursor that gets on."""

    position: Position
    """Where it reads next."""
    speed: float
    """Entries a second, above 0."""


class ReaderView:
    __slots__ = ("_places", "_reading", "_stopped", "_unacknowledged")

    def __init__(
        self,
        reading: Sequence[ReadingAt],
        stopped: Sequence[Position] = (),
        unacknowledged: Position = LATEST,
    ) -> None:
        """`reading`: cursors that get on, and those expected back; `stopped`: those that have not moved for a long
        time; what stands behind `unacknowledged` has not been acknowledged by everybody."""
        self._reading = sorted(reading)
        self._places = [one.position for one in self._reading]
        self._stopped = min(stopped, default=LATEST)
        self._unacknowledged = unacknowledged

    @property
    def slowest(self) -> Position | None:
        """Of those that get on."""
        return self._places[0] if self._places else None

    def is_expected(self, position: tuple[int, int]) -> bool:
        """Whether a reader who gets on will come to the position."""
        return bool(self._places) and self._places[0] <= position

    def has_stopped_before(self, position: tuple[int, int]) -> bool:
        return self._stopped <= position

    def may_return_to(self, position: tuple[int, int]) -> bool:
        return position > self._unacknowledged

    def due_us(self, position: tuple[int, int]) -> int | None:
        """In how many microseconds the first reader who gets on is likely to come to the position."""
        reading = self._reading
        end = bisect_right(self._places, position)
        if not end:
            return None
        readers = reading[max(0, end - READERS_ASKED_MAX) : end]
        return int(min([(_distance(place, position) + 1) / speed for place, speed in readers]) * 1e6)


NOBODY: Final = ReaderView(())


def _distance(reader: Position, position: tuple[int, int]) -> int:
    """How many entries the reader is away, as well as that can be told without the log's list of ledgers."""
    ledger_id, entry_id = position
    if reader[0] == ledger_id:
        return entry_id - reader[1]
    return entry_id + max(0, LEDGER_ENTRIES_GUESS - reader[1])


def entries_moved(before: Position, after: Position) -> int:
    """How far a cursor has come within a ledger; 0 if it went back, or into another one."""
    return max(0, after.entry_id - before.entry_id) if before.ledger_id == after.ledger_id else 0
