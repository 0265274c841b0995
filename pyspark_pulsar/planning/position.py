"""Where a reader is in a topic: everything up to and including a position has been read."""

from __future__ import annotations

from typing import Final, NamedTuple

WHOLE: Final = 2**31 - 1
"""As batch index: the entry with all its messages."""


class Position(NamedTuple):
    """(ledger, entry, batch index), ordered as messages are; read up to and with it."""

    ledger: int
    entry: int
    batch: int = WHOLE

    def __str__(self) -> str:
        tail = "" if self.batch == WHOLE else f":{self.batch}"
        return f"{self.ledger}:{self.entry}{tail}"

    def first_entry(self) -> tuple[int, int]:
        """The entry to begin with when everything up to here has been read."""
        return (self.ledger, self.entry + (self.batch == WHOLE)) if self.ledger >= 0 else (-1, -1)


EARLIEST: Final = Position(-1, -1)
"""Before everything there is."""


def before(ledger: int, entry: int, batch: int | None) -> Position:
    """Where a reader stands whose next message is this one."""
    if batch is None or batch <= 0:
        return Position(ledger, entry - 1)
    return Position(ledger, entry, batch - 1)


FOREVER_MS: Final = 2**63 - 1
"""Later than every publish time."""


class TopicRange(NamedTuple):
    """What a task reads of one topic: everything behind `start` up to and with `end`."""

    topic: str
    start: Position
    end: Position
    retained: bool = False
    """A subscription has kept everything behind `start`, so nothing can be missing."""
    from_ms: int = 0
    to_ms: int = FOREVER_MS
    """Publish times of the messages that are wanted, both included."""
