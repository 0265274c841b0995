"""MessageExpiry: acknowledges the messages of a topic whose time to live is over.

A message counts from its broker timestamp, else from its publish time, which a client's clock gives. So that one message
from the future does not keep those behind it, all of a ledger that was closed long enough ago is old enough too. With a
delivery time it lives on until it is due, unless `messageExpiryIgnoresDeliveryTime`: then it expires like any other, as in
Pulsar, and is never delivered.

    look -> newest_before    a binary search for the newest entry that is old enough, once for all subscriptions
         -> _find_delays     entries that no dispatcher has looked at yet may be delayed: they are read once
         -> _expire          per subscription, everything through that entry but what waits for its delivery time
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, Protocol

from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.model.entry import Entry
from broker.model.errors import EntryDamaged, NoSuchEntry
from broker.model.position import EARLIEST, Position
from broker.model.range_set import EntryRange
from broker.model.topic_name import TopicName
from broker.service.backlog.open_runs import open_runs
from broker.service.delayed_delivery import DelayedDelivery
from broker.service.effective_policies import EffectivePolicies
from broker.service.policies.table import MESSAGE_TTL
from broker.service.settings import ServiceSettings
from broker.service.subscription import Subscription
from broker.service.topic_positions import TopicPositions
from broker.service.topic_subscriptions import INTERNAL_CURSORS

_MS_PER_S: Final = 1000
_READ_AT_ONCE: Final = 100
"""Entries of one read while delayed ones are searched."""
_READ_PER_LOOK: Final = 50_000
"""Entries that one look reads for that; the next look goes on. They are read once in the broker's lifetime."""
_ACKS_PER_SLICE: Final = 1000
"""Entries acknowledged one by one before other work of the loop: about a millisecond."""


class ExpiringTopic(Protocol):
    """The topic, as far as its expiry uses it."""

    name: TopicName
    """Full name."""
    ledger: ManagedLedger
    """The topic's log."""
    settings: ServiceSettings
    """Current values."""
    policies: EffectivePolicies
    """The time to live."""
    subscriptions: dict[str, Subscription]
    """Open subscriptions by name."""
    positions: TopicPositions
    """Entries by time."""
    delays: DelayedDelivery
    """Messages that wait for their delivery time."""


class MessageExpiry:
    """The time to live of one topic's messages."""

    __slots__ = ("_delays_found_through", "_topic")

    def __init__(self, topic: ExpiringTopic) -> None:
        self._topic = topic
        self._delays_found_through = EARLIEST

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
        before_ms = topic.ledger.environment.wall_ms() - ttl_s * _MS_PER_S
        slowest = min(one.cursor.mark_delete_position for one in waiting)
        newest = await self._newest_old_enough(slowest, before_ms)
        if newest is None:
            return
        if not topic.settings.ttl_ignores_delays:
            newest = await self._find_delays(slowest, newest)
        for subscription in waiting:
            await self._expire(subscription, newest)

    async def _newest_old_enough(self, slowest: Position, before_ms: int) -> Position | None:
        """Returns the last entry that is old enough; None when none behind `slowest` is."""
        topic = self._topic
        closed = last_closed_before(topic.ledger.ledgers, before_ms)
        if closed is not None and closed <= slowest:
            closed = None
        first = topic.ledger.ledgers.next_valid(closed or slowest)
        if first > topic.ledger.last_confirmed:
            return closed
        # One read tells nearly always that nothing is old enough; the search below takes one per doubling of the topic.
        oldest_ms = await topic.positions.time_of(first)
        if oldest_ms is None or oldest_ms >= before_ms:
            return closed
        newest = await topic.positions.newest_before(before_ms)
        return newest if closed is None or newest is None else max(newest, closed)

    async def _find_delays(self, slowest: Position, newest: Position) -> Position:
        """Makes all delayed entries through `newest` known, and returns the position through which they are.

        Dispatchers find them as they read; a subscription without a consumer has none.
        """
        topic = self._topic
        after = max(slowest, self._delays_found_through)
        read = 0
        for wanted in _ranges(topic.ledger, after, newest):
            if topic.delays.looks_in(wanted.ledger_id):
                if read >= _READ_PER_LOOK:
                    break
                topic.delays.hold_back(await _readable(topic.ledger, wanted))
                read += _READ_AT_ONCE
            self._delays_found_through = Position(wanted.ledger_id, wanted.last)
        return min(newest, max(self._delays_found_through, slowest))

    async def _expire(self, subscription: Subscription, newest: Position) -> None:
        """Acknowledges the subscription's entries through `newest` that do not wait for their delivery time."""
        topic, cursor = self._topic, subscription.cursor
        before = cursor.backlog
        keeps = not topic.settings.ttl_ignores_delays and topic.delays.held.count
        first_kept = self._first_held(cursor.mark_delete_position, newest) if keeps else None
        if first_kept is None:
            subscription.acknowledge_through(newest)
        else:
            subscription.acknowledge_through(topic.ledger.ledgers.previous(first_kept))
            async for run in open_runs(cursor, first_kept):
                for positions in self._expired_in(run, newest):
                    cursor.acknowledge(positions)
                    await asyncio.sleep(0)
                if (run.ledger_id, run.last) >= newest:
                    break
        subscription.expired.count(before - cursor.backlog, topic.ledger.environment.wall_ms())

    def _first_held(self, behind: Position, through: Position) -> Position | None:
        """Returns the first held entry in (behind, through]."""
        ledgers, held = self._topic.ledger.ledgers, self._topic.delays.held
        for ledger_id in held.ledger_ids():
            if behind.ledger_id <= ledger_id <= through.ledger_id:
                first = behind.entry_id + 1 if ledger_id == behind.ledger_id else 0
                last = through.entry_id if ledger_id == through.ledger_id else ledgers.last_entry(ledger_id)
                entry_id = held.first_present(ledger_id, first, last)
                if entry_id <= last:
                    return Position(ledger_id, entry_id)
        return None

    def _expired_in(self, run: EntryRange, newest: Position) -> Iterator[list[tuple[int, int]]]:
        """Yields the run's entries through `newest` that are not held, in slices."""
        held, ledger_id = self._topic.delays.held, run.ledger_id
        if ledger_id > newest.ledger_id:
            return
        last = min(run.last, newest.entry_id) if ledger_id == newest.ledger_id else run.last
        for first in range(run.first, last + 1, _ACKS_PER_SLICE):
            slice_ = range(first, min(first + _ACKS_PER_SLICE, last + 1))
            if positions := [(ledger_id, one) for one in slice_ if (ledger_id, one) not in held]:
                yield positions


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


async def _readable(ledger: ManagedLedger, wanted: EntryRange) -> list[Entry]:
    """Returns the entries of the range without lost ones, which would stop the expiry of all others for ever."""
    try:
        return await ledger.read_entries(wanted)
    except (EntryDamaged, NoSuchEntry):
        found: list[Entry] = []
        for entry_id in range(wanted.first, wanted.last + 1):
            with contextlib.suppress(EntryDamaged, NoSuchEntry):
                found += await ledger.read_entries(EntryRange(wanted.ledger_id, entry_id, entry_id))
        return found


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
