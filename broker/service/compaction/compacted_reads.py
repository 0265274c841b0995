"""CompactedReads: the reads of a consumer with `readCompacted`.

At or below the horizon entries come from the compacted ledger, later ones from the log. The read position is the cursor's in
both cases, so the passage has neither a gap nor an entry twice, also when a compaction ends in the middle of it. The law: a
compacted entry is delivered only when its position is at or after the read position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from broker.managed_ledger.forward_read import ReadyEntries
from broker.managed_ledger.inflight_reads_limiter import ReadPermits
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.compaction.compacted_ledger import CompactedLedger
from broker.service.compaction.topic_compaction import TopicCompaction
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import EARLIEST, Position


class TopicWithCompaction(Protocol):
    """A topic whose consumers may read its compacted ledger."""

    compaction: TopicCompaction
    """The compacted ledger; made when it is first asked for."""


class CompactedReads:
    """Made anew for each consumer that becomes the active one."""

    __slots__ = (
        "_compaction",
        "_cursor",
        "_error",
        "_from_start",
        "_next",
        "_place",
        "_reading",
        "_ready",
        "_took_compacted",
        "_withdrawn",
    )

    def __init__(self, cursor: ManagedCursor, compaction: TopicCompaction, *, earliest: bool) -> None:
        """`earliest`: the consumer asked for the first message in case its subscription is new."""
        self._cursor = cursor
        self._compaction = compaction
        self._from_start = earliest
        self._ready = ReadyEntries(cursor.context.environment.turn)
        # The read position for which `_ready` holds the next entries.
        self._next = EARLIEST
        # (compacted ledger, number of its next entry, read position that this number belongs to)
        self._place: tuple[CompactedLedger, int, Position] | None = None
        self._reading = False
        self._error: BrokerError | None = None
        self._took_compacted = False
        self._withdrawn = False

    @property
    def reading(self) -> bool:
        """True while a read of the compacted ledger or of the log is under way."""
        return self._reading or self._cursor.reading

    @property
    def last_error(self) -> BrokerError | None:
        """The error of the last read, None after a success."""
        return self._error or self._cursor.last_error

    def has_more(self) -> bool:
        """Returns True if the compacted ledger or the log has entries after the read position."""
        return self._below_horizon() is not None or self._cursor.has_more()

    def _below_horizon(self) -> CompactedLedger | None:
        current = self._compaction.current
        return current if current is not None and self._cursor.read_position <= current.horizon else None

    def take(self, entries_max: int, bytes_max: int) -> list[Entry]:
        """Takes entries that were read; those that are acknowledged already are left out."""
        cursor = self._cursor
        while self._ready.entries:
            if cursor.read_position != self._next:
                # An acknowledgement or a seek has moved the cursor.
                self._ready.drop()
                break
            taken = self._ready.take(entries_max, bytes_max)
            self._move_to(_place_after(taken[-1]))
            beyond = cursor.acks.beyond
            wanted = [entry for entry in taken if entry.position not in beyond]
            if wanted:
                self._took_compacted = True
                cursor.context.counters().took(wanted)
                return wanted
        if self._below_horizon() is not None:
            return []
        self._took_compacted = False
        return cursor.take(entries_max, bytes_max)

    def give_back(self, position: Position, rest: Sequence[Entry] = ()) -> None:
        """Puts entries back that were taken and not sent."""
        if not self._took_compacted:
            self._cursor.give_back(position, rest)
            return
        self._ready.prepend(rest)
        self._cursor.context.counters().took_back(rest)
        self._move_to(position)

    def _move_to(self, position: Position) -> None:
        self._cursor.jump(position)
        self._next = position

    def request(self, entries_max: int, bytes_max: int, ready: Callable[[], None]) -> None:
        """Begins a read of the compacted ledger, or of the log after its horizon."""
        self._error = None
        compacted = self._below_horizon()
        if compacted is None:
            self._cursor.request(entries_max, bytes_max, ready)
            return
        self._reading = True
        work = self._read(compacted, entries_max, bytes_max, ready)
        self._cursor.context.background.spawn(work)

    async def _read(
        self, compacted: CompactedLedger, entries_max: int, bytes_max: int, ready: Callable[[], None]
    ) -> None:
        cursor, environment = self._cursor, self._cursor.context.environment
        at = cursor.read_position
        permits = ReadPermits(environment.reads_limiter, environment.turn, environment.now_ns)
        entries: list[Entry] = []
        first = 0
        try:
            first = await self._number_of(compacted, at)
            if first < compacted.entries:
                wanted = min(entries_max * compacted.average_entry_bytes, bytes_max)
                await _granted(permits, wanted)
                entries = await compacted.read(first, entries_max, bytes_max)
        except BrokerError as error:
            # A compaction that has ended meanwhile removes the ledger: the next read goes to its successor.
            if self._compaction.current is compacted:
                self._error = error
        self._reading = False
        current = not self._withdrawn and cursor.read_position == at
        if entries and current:
            self._place = compacted, first + len(entries), _place_after(entries[-1])
            self._next = at
            self._ready.keep(entries, permits)
        else:
            permits.release()
            if first >= compacted.entries and self._error is None and current:
                # Entries after the last compacted one were removed by the compaction: go on after the horizon.
                cursor.jump(cursor.context.ledgers.next_valid(compacted.horizon))
        ready()

    async def _number_of(self, compacted: CompactedLedger, position: Position) -> int:
        if self._place is not None and self._place[0] is compacted and self._place[2] == position:
            return self._place[1]
        return await compacted.find(position)

    def withdraw(self) -> None:
        """Drops what was read, and ignores a read in flight: the consumer has left."""
        # The cursor belongs to the next consumer from here on, which may read the log.
        self._withdrawn = True
        self._ready.drop()

    def rewind(self) -> None:
        """Goes back to the first unacknowledged entry, which may be one that the log has lost."""
        cursor = self._cursor
        self._ready.drop()
        cursor.rewind()
        mark_delete = cursor.mark_delete_position
        start = cursor.read_position
        if cursor.sought is not None and cursor.sought[1:] == mark_delete:
            start = min(start, cursor.sought[0])
        elif cursor.sought is None and self._from_start and mark_delete.entry_id < 0:
            # A durable cursor that has acknowledged nothing, after a restart: as Pulsar, from the first compacted entry.
            start = EARLIEST
        if start < cursor.read_position:
            cursor.jump(start)


def _place_after(entry: Entry) -> Position:
    return Position(entry.ledger_id, entry.entry_id + 1)


async def _granted(permits: ReadPermits, size_bytes: int) -> None:
    """Waits for the read's share of the budget. TooManyRequests when it takes too long."""
    granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    permits.acquire(size_bytes, lambda: granted.set_result(None), granted.set_exception)
    await granted
