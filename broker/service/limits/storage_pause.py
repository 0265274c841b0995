"""StoragePause: keeps producers away from a topic whose storage refuses entries. Pure: no I/O, no clock.

A failed add ends all producers of the topic, and their clients connect again and send the same messages. Pulsar's C++ and
Python clients begin the time-out of a send anew with each connection, so on a full disk, where every add fails at once, a
send would never end. The pause grows until it is longer than the time-out. The first failure causes none: many
are over at once.
"""

from __future__ import annotations

from typing import Final

from foundation.units import NS_PER_SECOND

PAUSE_NS_MIN: Final = NS_PER_SECOND
"""The pause after the second failure in a row."""
PAUSE_NS_MAX: Final = 32 * NS_PER_SECOND
"""Above 30 s, the clients' default time-out of a send."""


class StoragePause:
    """The failures in a row of one topic, until an entry is stored."""

    __slots__ = ("_next_ns", "_until_ns")

    def __init__(self) -> None:
        self._next_ns = 0
        self._until_ns = 0

    def add_failed(self, now_ns: int) -> None:
        """Begins the next pause. Ignores failures of sends that began before the current pause."""
        if now_ns < self._until_ns:
            return
        self._until_ns = now_ns + self._next_ns
        self._next_ns = min(max(self._next_ns * 2, PAUSE_NS_MIN), PAUSE_NS_MAX)

    def left_ns(self, now_ns: int) -> int:
        """Returns the time for which no producer may come; 0 = none."""
        return max(self._until_ns - now_ns, 0)
