"""MessageExpiry: acknowledges the messages of a topic that are older than its time to live, or than an administrator asks.

A message counts from its broker timestamp, else from its publish time, which a client's clock gives. A message with
a time in the future would hold back those after it, so a ledger that was closed long enough ago expires whole. A message
with a delivery time counts from that time, unless `messageExpiryIgnoresDeliveryTime`: then it expires like any other, as in
Pulsar, and one whose delivery time is later than its time to live is never delivered.

An administrator's request has the same rule, for one subscription and with a time of its own.

A seek wins over an expiry that began before it: the expiry leaves the rest of that subscription alone, because its answers
are about the position of before. The next look decides anew.

    look -> newest_before    a binary search for the newest entry that is old enough, once for all subscriptions
         -> ExpiringDelays   entries that may be delayed are read once
         -> _expire          per subscription, everything through that entry but what counts from a later delivery time
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final, Protocol

from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.policies.table import MESSAGE_TTL
from broker.service.subscriptions.backlog.expiring_delays import ExpiringDelays
from broker.service.subscriptions.backlog.open_runs import open_runs
from broker.service.subscriptions.subscription import SubscribedTopic, Subscription
from foundation.model.errors import LOST_ENTRY
from foundation.model.position import Position
from foundation.model.range_set import EntryRange, RangeSet
from foundation.units import MS_PER_SECOND

_ACKS_PER_SLICE: Final = 1000
"""Entries acknowledged one by one before other work of the loop: about a millisecond."""


class ExpiringTopic(SubscribedTopic, Protocol):
    """The topic, as far as its expiry uses it."""

    subscriptions: dict[str, Subscription]
    """Open subscriptions by name."""


class MessageExpiry:
    """The time to live of one topic's messages."""

    __slots__ = ("_delays", "_topic")

    def __init__(self, topic: ExpiringTopic) -> None:
        self._topic = topic
        self._delays: ExpiringDelays | None = None

    async def look(self) -> None:
        """Expires what is old enough. Raises as `ManagedLedger.read_entry`; the next look tries again."""
        topic = self._topic
        ttl_s = topic.policies.of(topic.name, MESSAGE_TTL)
        if ttl_s <= 0 or topic.name.is_system:
            return
        waiting = [
            one
            for one in topic.subscriptions.values()
            if one.durable and one.name not in INTERNAL_CURSORS and one.cursor.backlog
        ]
        if not waiting:
            return
        before_ms = topic.ledger.environment.wall_ms() - ttl_s * MS_PER_SECOND
        seeks = [one.cursor.seeks for one in waiting]
        slowest = min(one.cursor.mark_delete_position for one in waiting)
        newest = await self._newest_old_enough(slowest, before_ms)
        if newest is None:
            return
        held = None
        if not topic.settings.ttl_ignores_delays:
            # Made now: most topics never have a message that is old enough.
            delays = self._delays = self._delays or ExpiringDelays(topic.ledger)
            await delays.begin(slowest, before_ms)
            newest = await delays.find(newest, topic.delays)
            held = delays.held
        for subscription, before in zip(waiting, seeks, strict=True):
            await self._expire(subscription, before, newest, held)

    async def expire(self, subscription: Subscription, before_ms: int) -> int:
        """Expires what is older than the time (ms since 1970) and returns the number. Raises as `look`."""
        topic, seeks = self._topic, subscription.cursor.seeks
        newest = await topic.positions.newest_before(before_ms)
        slowest = subscription.cursor.mark_delete_position
        if newest is None or newest <= slowest:
            return 0
        held = None
        if not topic.settings.ttl_ignores_delays:
            # Not those of `look`, whose time is another one.
            delays = ExpiringDelays(topic.ledger)
            await delays.begin(slowest, before_ms)
            known = slowest
            # A slice may end early; the last one finds nothing new.
            while (through := await delays.find(newest, topic.delays)) > known:
                known = through
            newest, held = known, delays.held
        return await self._expire(subscription, seeks, newest, held)

    async def _newest_old_enough(self, slowest: Position, before_ms: int) -> Position | None:
        """Returns the last entry that is old enough; None when none after `slowest` is."""
        topic = self._topic
        closed = last_closed_before(topic.ledger.ledgers, before_ms)
        if closed is not None and closed <= slowest:
            closed = None
        first = topic.ledger.ledgers.next_valid(closed or slowest)
        if first > topic.ledger.last_confirmed:
            return closed
        # One read tells nearly always that nothing is old enough; the search below takes one per doubling of the topic.
        # A lost entry does not tell, and would keep all others from expiring for ever.
        with contextlib.suppress(*LOST_ENTRY):
            oldest_ms = await topic.positions.time_of(first)
            if oldest_ms is None or oldest_ms >= before_ms:
                return closed
        newest = await topic.positions.newest_before(before_ms)
        return newest if closed is None or newest is None else max(newest, closed)

    async def _expire(
        self, subscription: Subscription, seeks: int, newest: Position, held: RangeSet | None
    ) -> int:
        """Acknowledges the subscription's entries through `newest` that are not held; returns their number.

        Ends at a seek after the first so many, `seeks`.
        """
        topic, cursor = self._topic, subscription.cursor
        if cursor.seeks != seeks:
            return 0
        before = cursor.backlog
        ledgers = topic.ledger.ledgers
        kept = None if held is None else _first_held(ledgers, held, cursor.mark_delete_position, newest)
        subscription.acknowledge_through(newest if kept is None else ledgers.previous(kept))
        count = before - cursor.backlog
        if held is not None and kept is not None:
            async for positions in _expired_after(cursor, kept, held, newest):
                if cursor.seeks != seeks:
                    break
                # Counted here: between two slices producers publish and consumers acknowledge.
                before = cursor.backlog
                cursor.acknowledge(positions)
                count += before - cursor.backlog
                await asyncio.sleep(0)
        subscription.expired = subscription.expired.counted(count, topic.ledger.environment.wall_ms())
        return count


def last_closed_before(ledgers: LedgerList, before_ms: int) -> Position | None:
    """Returns the last entry of the ledgers at the front that were closed before the time; None without one.

    Their entries are older than that by the broker's clock, whatever their publish times say.
    """
    last = None
    for info in ledgers.infos()[:-1]:
        if info.closed_at_ms is None or info.closed_at_ms >= before_ms:
            break
        last = Position(info.ledger_id, info.entries - 1)
    return last


def _first_held(ledgers: LedgerList, held: RangeSet, after: Position, through: Position) -> Position | None:
    """Returns the first held entry in (after, through]."""
    for ledger_id in held.ledger_ids():
        if after.ledger_id <= ledger_id <= through.ledger_id:
            first = after.entry_id + 1 if ledger_id == after.ledger_id else 0
            last = through.entry_id if ledger_id == through.ledger_id else ledgers.last_entry(ledger_id)
            entry_id = held.first_present(ledger_id, first, last)
            if entry_id <= last:
                return Position(ledger_id, entry_id)
    return None


async def _expired_after(
    cursor: ManagedCursor, kept: Position, held: RangeSet, newest: Position
) -> AsyncIterator[list[tuple[int, int]]]:
    """Yields the open entries in [kept, newest] that are not held, in slices."""
    async for run in open_runs(cursor, kept):
        for positions in _expired_in(run, held, newest):
            yield positions
        if (run.ledger_id, run.last) >= newest:
            return


def _expired_in(run: EntryRange, held: RangeSet, newest: Position) -> Iterator[list[tuple[int, int]]]:
    """Yields the run's entries through `newest` that are not held, in slices."""
    ledger_id = run.ledger_id
    if ledger_id > newest.ledger_id:
        return
    last = min(run.last, newest.entry_id) if ledger_id == newest.ledger_id else run.last
    for first in range(run.first, last + 1, _ACKS_PER_SLICE):
        slice_ = range(first, min(first + _ACKS_PER_SLICE, last + 1))
        if positions := [(ledger_id, one) for one in slice_ if (ledger_id, one) not in held]:
            yield positions
