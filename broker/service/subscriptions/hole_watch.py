"""HoleWatch: notes how far one subscription had read at which time, so that old holes are told from new ones.

Each look notes the read position: an entry before it was read before that time. So a message costs nothing, and the search
for forgotten entries leaves out those that were read a moment ago. A search for entries that are pending for too long notes
those that it finds, since a redelivery may have come long after the read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.consumer import Consumer
from foundation.model.position import EARLIEST, Position, PositionKey

PENDING_NOTED_MAX: Final = 10_000
"""Entries of one subscription that are noted as pending; others wait until some of these are acknowledged or delivered
again."""
LOOKS_KEPT: Final = 16
"""Looks of one subscription that are kept; beyond that every second one goes, so that the oldest times stay known."""


class HoleLook(NamedTuple):
    """One look at a subscription."""

    at_ns: int
    """Monotonic time."""
    wall_ms: int
    """Wall clock, for people."""
    read: Position
    """Entries before it had been read."""


class PendingHole(NamedTuple):
    """An entry that a search found pending at a consumer, before an acknowledged one."""

    consumer: Consumer
    """The consumer."""
    redeliveries: int
    """Its redelivery count then; another count is another delivery."""
    since_ns: int
    """Monotonic time of the first such search."""


def passed_before(looks: Sequence[HoleLook], before_ns: int) -> Position | None:
    """Returns the furthest read position of the looks at or before the time; None without one."""
    return max((look.read for look in looks if look.at_ns <= before_ns), default=None)


def read_between(looks: Sequence[HoleLook], key: tuple[int, int]) -> tuple[HoleLook | None, HoleLook | None]:
    """Returns the last look before the entry was read, and the first one after; None where there is no such look."""
    before: HoleLook | None = None
    for look in looks:
        if look.read > key:
            return before, look
        before = look
    return before, None


def thinned(looks: list[HoleLook]) -> list[HoleLook]:
    """Returns the looks, every second one of them once there are too many; the first and the last stay."""
    return looks if len(looks) <= LOOKS_KEPT else [*looks[:-1:2], looks[-1]]


def has_unacknowledged(cursor: ManagedCursor) -> bool:
    """Returns True while an entry that was read is not acknowledged."""
    read, acks = cursor.read_position, cursor.acks
    # The usual case, without a look at the ledgers: everything up to the read position is acknowledged.
    if read.ledger_id == acks.ledger_id and read.entry_id <= acks.entry_id + 1:
        return False
    return acks.first_open(EARLIEST) < read


class HoleWatch:
    """The looks at one subscription, and the entries that were found forgotten or pending for too long."""

    __slots__ = ("_dispatcher", "last_ms", "looks", "pending", "pending_redelivered", "redelivered")

    def __init__(self) -> None:
        self.looks: list[HoleLook] = []
        """In order of time; [] while everything that was read is acknowledged."""
        self.redelivered = 0
        """Entries that were found forgotten and are delivered again, since the topic was opened."""
        self.pending_redelivered = 0
        """Entries that were pending at a consumer for too long and are delivered again, since the topic was opened."""
        self.last_ms = 0
        """Wall clock of the last one of both, ms since 1970; 0 = none yet."""
        self.pending: dict[PositionKey, PendingHole] = {}
        """Entries that the last whole search found pending at a consumer before an acknowledged one."""
        self._dispatcher: object = None

    def look(self, dispatcher: object, cursor: ManagedCursor, now_ns: int) -> None:
        """Notes the read position. `dispatcher` is None without consumers."""
        read = cursor.read_position
        if dispatcher is not self._dispatcher:
            # The first consumer after an absence gets everything unacknowledged anew.
            self._dispatcher = dispatcher
            self.looks = []
            self.pending = {}
        if dispatcher is None or not has_unacknowledged(cursor):
            self.looks = []
            return
        mark_delete = cursor.mark_delete_position
        # Every hole is after the mark-delete position, so only the last check before it says something.
        while len(self.looks) > 1 and self.looks[1].read <= mark_delete:
            del self.looks[0]
        self.looks = thinned([*self.looks, HoleLook(now_ns, cursor.context.environment.wall_ms(), read)])

    def count_redelivered(self, entries: int, wall_ms: int, *, pending: bool = False) -> None:
        """Counts entries that are delivered again; `pending`: they were pending at a consumer."""
        if entries:
            if pending:
                self.pending_redelivered += entries
            else:
                self.redelivered += entries
            self.last_ms = wall_ms
