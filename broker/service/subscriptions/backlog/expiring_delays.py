"""ExpiringDelays: the delayed messages of one topic whose age counts from their delivery time.

A delayed message may be older than the time to live before its delivery time. If its age counted from its publication, it
would expire between the moment it is due and its delivery, or while its consumer is away. So its time to live begins at
its delivery time, and the entry itself says both times: nothing has to be remembered over a restart.

    look -> begin       forgets everything when a cursor or the limit went back
         -> find        reads entries that are old enough by their publication, each once
         -> held        the entries that stay, for `MessageExpiry`
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from broker.managed_ledger.delayed.delayed_entries import DelayedEntries
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.entry_facts import facts_of
from broker.service.subscriptions.delayed_delivery import DelayedDelivery
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, Position
from foundation.model.range_set import EntryRange, RangeSet

_READ_AT_ONCE: Final = 100
"""Entries of one read."""
_READ_PER_LOOK: Final = 50_000
"""Entries that one check reads; the next one goes on. They are read once in the broker's lifetime."""
_PER_SLICE: Final = 1000
"""Entries whose time has come that are taken out before other work of the loop: about a millisecond."""
_SEGMENT: Final = 1000
_BUCKET: Final = 50_000
_TICK_MS: Final = 1000


class ExpiringDelays:
    """Entries whose delivery time is not older than the time to live."""

    __slots__ = ("_before_ms", "_entries", "_from", "_ledger", "_through")

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger
        # Made at the first delayed entry: most topics have none.
        self._entries: DelayedEntries | None = None
        self._from = EARLIEST
        self._through = EARLIEST
        self._before_ms = 0

    @property
    def held(self) -> RangeSet | None:
        """Positions that do not expire yet; None without any."""
        return self._entries.held if self._entries is not None and len(self._entries) else None

    async def begin(self, slowest: Position, before_ms: int) -> None:
        """Begins a check: forgets entries that every cursor has passed, and those due before the time."""
        if slowest < self._from or before_ms < self._before_ms:
            # A cursor, the clock or a longer time to live brings back entries that were dropped: read them again.
            self._entries, self._through = None, EARLIEST
        self._from, self._before_ms = slowest, before_ms
        entries = self._entries
        if entries is None:
            return
        entries.forget(slowest)
        while (due_ms := entries.next_due_ms) is not None and due_ms < before_ms:
            entries.take_due(before_ms - 1, _PER_SLICE)
            entries.remove_empty()
            await asyncio.sleep(0)

    async def find(self, newest: Position, delays: DelayedDelivery) -> Position:
        """Reads what is not known yet through `newest`, and returns the position through which all is known."""
        slowest = self._from
        read = 0
        for wanted in _ranges(self._ledger, max(slowest, self._through), newest):
            if delays.looks_in(wanted.ledger_id):
                if read >= _READ_PER_LOOK:
                    break
                # Without lost entries, which would stop the expiry of all others for ever.
                self._hold(await self._ledger.read_readable(wanted))
                read += _READ_AT_ONCE
            self._through = Position(wanted.ledger_id, wanted.last)
        return min(newest, max(self._through, slowest))

    def _hold(self, found: list[Entry]) -> None:
        for entry in found:
            facts = entry.facts or facts_of(entry)
            if facts is not None and facts.deliver_at_ms and facts.deliver_at_ms >= self._before_ms:
                if self._entries is None:
                    self._entries = DelayedEntries(_SEGMENT, _BUCKET)
                self._entries.hold(entry.ledger_id, entry.entry_id, facts.deliver_at_ms, _TICK_MS)


def _ranges(ledger: ManagedLedger, after: Position, through: Position) -> Iterator[EntryRange]:
    """Yields the entries in (after, through] in ranges of one read each."""
    position = ledger.ledgers.next_valid(after)
    while position <= through and ledger.ledgers.has_entry(*position):
        ledger_id, first = position
        last = min(first + _READ_AT_ONCE - 1, ledger.ledgers.last_entry(ledger_id))
        if ledger_id == through.ledger_id:
            last = min(last, through.entry_id)
        yield EntryRange(ledger_id, first, last)
        position = ledger.ledgers.next_valid((ledger_id, last))
