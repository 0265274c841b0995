"""Positions of readers in a topic, and the range of a topic that one task reads.

Law: a position names the last message that has been read, so a range is open at its start and closed at its end.
Adjacent ranges then share a border without reading a message twice.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WHOLE: Final = 2**31 - 1
"""Batch index of a position after all messages of its entry; greater than every real index."""


class MessagePosition(NamedTuple):
    """The last message that has been read. Positions compare in the order of the messages."""

    ledger: int
    """-1 before the first ledger."""
    entry: int
    """-1 before the first entry of the ledger."""
    batch: int = WHOLE
    """Index in the entry's batch, or WHOLE."""

    def __str__(self) -> str:
        tail = "" if self.batch == WHOLE else f":{self.batch}"
        return f"{self.ledger}:{self.entry}{tail}"

    def first_entry(self) -> tuple[int, int]:
        """Returns (ledger, entry) of the entry to read next; (-1, -1) for the begin of the topic.

        A position inside a batch returns that batch's entry again: its remaining messages are still to be read.
        """
        return (self.ledger, self.entry + (self.batch == WHOLE)) if self.ledger >= 0 else (-1, -1)


EARLIEST: Final = MessagePosition(-1, -1)
"""The position before the first message of every topic."""


def before(ledger: int, entry: int, batch: int | None) -> MessagePosition:
    """Returns the position of a reader whose next message is the given one."""
    if batch is None or batch <= 0:
        return MessagePosition(ledger, entry - 1)
    return MessagePosition(ledger, entry, batch - 1)


FOREVER_MS: Final = 2**63 - 1
"""Upper limit of a range without an end by time; later than every publish time."""


class TopicRange(NamedTuple):
    """The part of one topic that a task reads: after `start`, up to and including `end`."""

    topic: str
    """Full name of a topic or partition."""
    start: MessagePosition
    """Last position before the range."""
    end: MessagePosition
    """Last position of the range."""
    retained: bool = False
    """True if a subscription has kept all ledgers after `start`, so no check for trimmed ledgers is needed."""
    from_ms: int = 0
    """Lowest publish time that is read, in milliseconds since 1970."""
    to_ms: int = FOREVER_MS
    """Highest publish time that is read, included."""
