"""TopicPositions: finds entries of a persistent topic by time, and the last message of the topic."""

from __future__ import annotations

import logging
from typing import Final

from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.entry_facts import facts_of
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, Position
from protocol.broker_entry_metadata import decode

log = logging.getLogger(__name__)

_NO_MESSAGE: Final = (EARLIEST, -1)


class TopicPositions:
    """Answers questions about positions from the topic's managed ledger."""

    __slots__ = ("_last_message", "_ledger", "_searched_to")

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger
        # The result of the last call of `last_message`. Readers of many topics ask for it again and again, and
        # without it each call would read the entry.
        self._last_message = _NO_MESSAGE
        self._searched_to = EARLIEST

    async def first_since(self, timestamp_ms: int) -> Position:
        """Returns the first position not older than the time; EARLIEST when no entry is older.

        Logs the number of entries that were read for it.
        """
        now_ns = self._ledger.environment.now_ns
        began_ns = now_ns()
        newest, reads = await self._search(timestamp_ms)
        found = EARLIEST if newest is None else self._ledger.ledgers.next_valid(newest)
        log.info(
            "%s: time %d is at %d:%d, found by %d reads in %.1f ms",
            *(self._ledger.name, timestamp_ms, *found, reads, (now_ns() - began_ns) / 1e6),
        )
        return found

    async def newest_before(self, timestamp_ms: int) -> Position | None:
        """Returns the newest entry older than the time, or None.

        An entry's time is the broker timestamp (PIP-70), else the publish time of its client.
        """
        return (await self._search(timestamp_ms))[0]

    async def _search(self, timestamp_ms: int) -> tuple[Position | None, int]:
        """Returns the result of `newest_before`, and the number of entries that were read."""
        reads = 0

        def older(entry: Entry) -> bool:
            nonlocal reads
            reads += 1
            stored_ms = time_of(entry)
            return stored_ms is not None and stored_ms < timestamp_ms

        newest = await self._ledger.find_newest(older, near_ms=timestamp_ms)
        searches = self._ledger.environment.time_searches
        searches.count += 1
        searches.reads += reads
        return newest, reads

    async def time_of(self, position: Position) -> int | None:
        """Returns the time of an entry, see `newest_before`; None with unreadable metadata. Raises as `read_entry`."""
        return time_of(await self._ledger.read_entry(position))

    def known_last_message(self) -> tuple[Position, int] | None:
        """Returns the last message without waiting, None when it must be read. See `last_message`."""
        last = self._ledger.context.last_readable
        # An empty topic: (-1, -1) on the wire, as recorded of Pulsar 4.2.4.
        if last.entry_id < 0:
            return EARLIEST, -1
        return self._last_message if self._searched_to == last else None

    async def last_message(self) -> tuple[Position, int]:
        """Returns the last entry and the index of its last message.

        The index is -1 outside of a batch; an empty topic returns (EARLIEST, -1).
        """
        known = self.known_last_message()
        if known is not None:
            return known
        end = self._ledger.context.last_readable
        entry = await self._last_visible(end)
        if entry is None:
            return EARLIEST, -1
        facts = facts_of(entry)
        batch_index = -1 if facts is None or not facts.batched else facts.messages - 1
        self._searched_to, self._last_message = end, (entry.position, batch_index)
        return self._last_message

    async def _last_visible(self, end: Position) -> Entry | None:
        """Returns the last entry through `end` that readers get; None without one."""
        while end.entry_id >= 0:
            entry = await self._ledger.read_entry(end)
            view = self._ledger.context.view
            # No cursor: what a subscription has acknowledged is a message all the same.
            if view is None or not view.divide("", [entry]).left_out:
                return entry
            before = self._ledger.ledgers.previous(end)
            if before == end or not self._ledger.ledgers.has_entry(*before):
                return None
            end = before
        return None


def time_of(entry: Entry) -> int | None:
    """Returns the broker timestamp (PIP-70), else the publish time; None with unreadable metadata."""
    stamped = decode(entry.header).broker_timestamp_ms
    if stamped is not None:
        return stamped
    facts = facts_of(entry)
    return None if facts is None else facts.publish_time_ms
