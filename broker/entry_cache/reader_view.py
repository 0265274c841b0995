"""ReaderView: the readers of one log at one moment, as a policy that decides by positions looks at them.

PIP-430 counts reads at an entry; a log can be asked instead. Whoever reads on at or before a position will come
to it, and whoever has read past it without acknowledging it may come again. So nothing has to be counted
down, a cursor that leaves takes its claims along, and one that comes back brings them with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from broker.model.position import LATEST, Position

LEDGER_ENTRIES_GUESS: Final = 50_000
"""Entries that a ledger is taken to have, for distances that go past its end."""


class ReaderView:
    __slots__ = ("reading", "stopped", "unacknowledged")

    def __init__(
        self, reading: Sequence[Position], stopped: Sequence[Position] = (), unacknowledged: Position = LATEST
    ) -> None:
        self.reading = reading
        """Where cursors that get on will read next, ascending; one that has just left counts at the place
        where it would begin again."""
        self.stopped = stopped
        """Likewise of those that have not moved for a long time."""
        self.unacknowledged = unacknowledged
        """What stands behind this position has not been acknowledged by everybody."""

    def nearest(self, position: Position) -> Position | None:
        """The reader that will come to the position first, of those that get on."""
        index = bisect_right(self.reading, position)
        return self.reading[index - 1] if index else None

    def first_claimed(self, first: Position) -> Position | None:
        """The first position, from `first` on, that a reader who gets on will come to."""
        return max(self.reading[0], first) if self.reading else None

    def has_stopped_before(self, position: Position) -> bool:
        return bool(self.stopped) and self.stopped[0] <= position

    def may_return_to(self, position: Position) -> bool:
        return position > self.unacknowledged


NOBODY: Final = ReaderView(())


def distance(reader: Position, position: Position) -> int:
    """How many entries the reader is away, as well as that can be told without the log's list of ledgers."""
    ledgers = position.ledger_id - reader.ledger_id
    if not ledgers:
        return position.entry_id - reader.entry_id
    return position.entry_id + LEDGER_ENTRIES_GUESS
