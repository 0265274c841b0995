"""Unacked: messages that a session has sent and its client has not acknowledged. Pure.

The broker knows entries, the client single messages of batches: an entry is acknowledged when its last message is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from foundation.model.position import PositionKey

Lane = TypeVar("Lane")

ENTRIES_MAX: Final = 50_000
"""Unacknowledged entries of one session at which it gets no more, as Pulsar's limit for a consumer."""
_WORD: Final = 64


@dataclass(slots=True)
class SentEntry(Generic[Lane]):
    """An entry with messages that are not acknowledged."""

    lane: Lane
    """The consumer that got it."""
    left: set[int]
    """Batch indexes that are not acknowledged; {-1} for an entry that is no batch."""
    batch_size: int
    """0 = no batch."""
    sent_ms: int
    """When its first message was sent."""
    sent: int = 0
    """Messages that count against the client's window."""
    parts: tuple[PositionKey, ...] = ()
    """Entries with the first parts of a large message, acknowledged with this last one."""

    def ack_set(self) -> tuple[int, ...]:
        """Returns the bit set of the unacknowledged messages in 64-bit words (PIP-54)."""
        words = [0] * -(-self.batch_size // _WORD)
        for index in self.left:
            words[index // _WORD] |= 1 << index % _WORD
        return tuple(words)


class Unacked(Generic[Lane]):
    """The unacknowledged entries of one session, in the order in which they were sent."""

    def __init__(self) -> None:
        self.entries: dict[PositionKey, SentEntry[Lane]] = {}
        """By position."""

    @property
    def full(self) -> bool:
        """True at ENTRIES_MAX."""
        return len(self.entries) >= ENTRIES_MAX

    def add(self, key: PositionKey, entry: SentEntry[Lane]) -> None:
        """Adds an entry; one that is sent again takes the place of the former."""
        self.entries.pop(key, None)
        self.entries[key] = entry

    def acknowledge(self, key: PositionKey, index: int) -> tuple[SentEntry[Lane], bool] | None:
        """Notes the acknowledgement of a message. Returns its entry, and True when the whole entry is acknowledged.

        Returns None for a message that is not waiting for it.
        """
        entry = self.entries.get(key)
        if entry is None or index not in entry.left:
            return None
        entry.left.remove(index)
        entry.sent -= 1
        if entry.left:
            return entry, False
        del self.entries[key]
        return entry, True

    def take(self, key: PositionKey) -> SentEntry[Lane] | None:
        """Removes an entry that will be sent again."""
        return self.entries.pop(key, None)

    def take_of(self, lane: Lane) -> list[SentEntry[Lane]]:
        """Removes all entries of a lane."""
        keys = [key for key, entry in self.entries.items() if entry.lane is lane]
        return [self.entries.pop(key) for key in keys]

    def sent_before(self, ms: int) -> Iterable[tuple[PositionKey, SentEntry[Lane]]]:
        """Returns the entries that were sent before a time."""
        found = []
        for key, entry in self.entries.items():
            if entry.sent_ms >= ms:
                break
            found.append((key, entry))
        return found
