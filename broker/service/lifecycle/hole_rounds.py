"""HoleRounds: delivers entries of all subscriptions again that are forgotten (`unackedHoleRedeliveryEnabled`), or pending at
a consumer for too long before an acknowledged one (`unackedHoleRedeliveryPendingSeconds`).

One round over all subscriptions now and then, and no task per subscription:

    run, each second -> a round, when one is due    each subscription is looked at, and searched where entries were read
                                                    longer ago than its period and are still unacknowledged
                     -> searches under way          each goes on with its next group

A group has at most `GROUP_ENTRIES` entries, so entries come back at this rate per second and subscription, in the order of
the log. Forgotten entries are read here, in few reads that are longer than the holes: the key of an entry, its delivery time
and its transaction may matter. A Shared subscription gets them as they were read. On a Key_Shared subscription each one
waits under its key, so newer ones do not overtake it. A delayed entry waits for its time. A pending entry goes the way of a
negative acknowledgement, and its redelivery count rises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker.service.consumer import Consumer
from broker.service.lifecycle.rounds import Defects
from broker.service.policies.table import HOLE_REDELIVERY
from broker.service.policies.values import HoleRedelivery
from broker.service.subscriptions.backlog.holes import Hole, next_holes, place_of, serving_dispatcher
from broker.service.subscriptions.dispatch.places import Place
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.hole_watch import (
    PENDING_NOTED_MAX,
    HoleWatch,
    PendingHole,
    has_unacknowledged,
    passed_before,
)
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.slices import in_slices
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import EARLIEST, Position, PositionKey
from foundation.model.range_set import EntryRange
from foundation.units import NS_PER_SECOND

log = logging.getLogger("magnetar")

GROUP_ENTRIES: Final = 1000
"""Entries of one subscription that are delivered again per second: 3 % of a core, docs/reference/benchmarks.md."""
GROUP_BYTES: Final = 8 << 20
"""Bytes after which a group reads no more, since its entries are in memory until they are sent: 1,000 may have 5 GiB."""
ROUND_S_MAX: Final = 60
"""Longest time between two rounds; a topic's policy with a shorter period acts after it."""
GAP_MAX: Final = 16
"""Acknowledged entries between two forgotten ones that are read in vain, because one longer read is cheaper than two."""
READ_ENTRIES_MAX: Final = 100
"""Entries of one read; fewer where they are so large on average that they exceed `GROUP_BYTES`."""


@dataclass(slots=True)
class Search:
    """A search of one subscription that is under way."""

    watch: HoleWatch
    """The looks at the subscription."""
    dispatcher: SharedDispatcher
    """The dispatcher that has read the entries; another one delivers them anew."""
    at: Position
    """The position at which it goes on."""
    end: Position
    """Entries after it were read too recently to be forgotten."""
    acknowledged: Position
    """The last acknowledged entry; EARLIEST where pending entries stay at their consumers."""
    pending: dict[PositionKey, PendingHole] = field(default_factory=dict)
    """Entries before it that the search has found pending at a consumer."""


class HoleRounds:
    """The rounds of one broker."""

    def __init__(self, registry: TopicRegistry, now_ns: Callable[[], int]) -> None:
        """Looks at nothing before the first `run`; `now_ns` is a monotonic clock."""
        self._registry = registry
        self._now_ns = now_ns
        self._due_ns = 0
        self._searches: dict[Subscription, Search] = {}
        self.title = "holes"
        """Name of the work, for log lines."""
        self.running = False
        """True while a run is under way; the next one leaves itself out."""

    async def run(self) -> None:
        """Makes a round when one is due, and goes on with the searches under way; to be called each second."""
        if self.running:
            return
        self.running = True
        defects = Defects()
        try:
            now_ns = self._now_ns()
            if now_ns >= self._due_ns:
                self._due_ns = now_ns + await self._round(now_ns, defects) * NS_PER_SECOND
            for subscription, search in list(self._searches.items()):
                if await self._has_ended(subscription, search, defects):
                    del self._searches[subscription]
        finally:
            self.running = False
            defects.report(self.title)

    async def _has_ended(self, subscription: Subscription, search: Search, defects: Defects) -> bool:
        """Searches on as `_is_done`; a search that meets a defect ends, and a later round begins it anew."""
        try:
            return await self._is_done(subscription, search)
        except Exception as error:  # noqa: BLE001
            # A defect that one subscription meets must not keep all later ones from their forgotten entries.
            defects.add(f"subscription {subscription.name} on {subscription.topic.name}", error)
            return True

    async def _round(self, now_ns: int, defects: Defects) -> int:
        """Looks at all subscriptions; returns the seconds until the next round."""
        registry = self._registry
        # The keys count without an open topic, too: one that opens a moment later is not to wait for the longest time.
        keys = registry.settings
        shortest_s = min(ROUND_S_MAX, keys.hole_period_s, keys.hole_pending_s or ROUND_S_MAX)
        # A copy: topics open and close during the pauses.
        async for topic in in_slices(list(registry.topics.values()), registry.now_ns):
            if not isinstance(topic, PersistentTopic) or topic.closed or not topic.subscriptions:
                continue
            try:
                policy = registry.policies.of(topic.name, HOLE_REDELIVERY)
                shortest_s = min(shortest_s, policy.period_s, policy.pending_s or shortest_s)
                for subscription in topic.subscriptions.values():
                    self._look(subscription, now_ns, policy)
            except Exception as error:  # noqa: BLE001
                # As in `_has_ended`: the topics after this one are checked all the same.
                defects.add(str(topic.name), error)
        return shortest_s

    def _look(self, subscription: Subscription, now_ns: int, policy: HoleRedelivery) -> None:
        """Looks at one subscription, and begins a search where the policy asks for it and there may be something."""
        dispatcher = serving_dispatcher(subscription)
        if subscription.holes is None:
            # Made for a subscription that has something to watch: those of silent topics were 600 B each.
            if dispatcher is None or not has_unacknowledged(subscription.cursor):
                return
            subscription.holes = HoleWatch()
        watch = subscription.holes
        watch.look(dispatcher, subscription.cursor, now_ns)
        if dispatcher is None or not policy.active or subscription in self._searches:
            return
        end = passed_before(watch.looks, now_ns - policy.period_s * NS_PER_SECOND) or EARLIEST
        beyond = subscription.cursor.acks.beyond
        acknowledged = Position(*beyond.last()) if policy.pending_s and beyond.count else EARLIEST
        if max(end, acknowledged) > subscription.cursor.mark_delete_position:
            self._searches[subscription] = Search(watch, dispatcher, EARLIEST, end, acknowledged)
        else:
            watch.pending = {}

    async def _is_done(self, subscription: Subscription, search: Search) -> bool:
        """Searches on until a group is full; returns True at the end of the search."""
        dispatcher, found = search.dispatcher, 0
        # A search of many entries takes minutes; a policy that is switched off meanwhile ends it.
        policy = self._registry.policies.of(subscription.topic.name, HOLE_REDELIVERY)
        if not policy.active:
            return True
        while found < GROUP_ENTRIES:
            if serving_dispatcher(subscription) is not dispatcher:
                return True
            # Positions that wait take memory, and they leave only as fast as consumers ask for messages.
            if len(dispatcher.redelivery.queue) >= GROUP_ENTRIES:
                return False
            # Entries that were given back since then stand at or after the read position: reading on brings them.
            end = min(max(search.end, search.acknowledged), subscription.cursor.read_position)
            holes, following = next_holes(subscription, dispatcher, search.at, end)
            due = [hole for hole in holes if self._is_due(subscription, search, hole, policy.pending_s)]
            group = due[: GROUP_ENTRIES - found]
            if len(group) < len(due):
                following = Position(*due[len(group)].key)
            self._take_back(subscription, search, group)
            forgotten = [hole.key for hole in group if hole.where.consumer is None]
            if forgotten:
                unread = await self._redeliver(subscription, search, forgotten)
                if unread is not None:
                    search.at = unread
                    return False
            found += len(group)
            if following is None:
                search.watch.pending = search.pending
                return True
            search.at = following
            await asyncio.sleep(0)
        return False

    def _is_due(self, subscription: Subscription, search: Search, hole: Hole, pending_s: int) -> bool:
        """Returns True for an entry to deliver again, and notes one that is pending before an acknowledged entry."""
        key, (place, consumer) = hole
        if place is Place.FORGOTTEN:
            return key < search.end
        transactional = subscription.transactional
        if (
            consumer is None
            or not pending_s
            or key >= search.acknowledged
            or (transactional is not None and transactional.pending.touches(key))
        ):
            return False
        redeliveries, now_ns = search.dispatcher.redelivery.counts.get(key, 0), self._now_ns()
        noted = search.pending.get(key) or search.watch.pending.get(key)
        if noted is None or noted[:2] != (consumer, redeliveries):
            # The time counts from here: a delivery may have come long after the read, and it keeps no time.
            noted = PendingHole(consumer, redeliveries, now_ns)
        if len(search.pending) < PENDING_NOTED_MAX:
            search.pending[key] = noted
        return now_ns - noted.since_ns >= pending_s * NS_PER_SECOND

    def _take_back(self, subscription: Subscription, search: Search, group: list[Hole]) -> None:
        """Delivers those of the entries again that are pending at a consumer."""
        by_consumer: dict[Consumer, list[PositionKey]] = {}
        for key, (_, consumer) in group:
            if consumer is not None:
                by_consumer.setdefault(consumer, []).append(key)
        wall_ms = subscription.cursor.context.environment.wall_ms()
        for consumer, keys in by_consumer.items():
            search.dispatcher.redeliver(consumer, keys)
            search.watch.count_redelivered(len(keys), wall_ms, pending=True)
            log.warning(
                "! %d entries of subscription %s on %s were pending at consumer %s for too long while later ones were"
                " acknowledged; they are delivered again, from %d:%d to %d:%d",
                *(len(keys), subscription.name, subscription.topic.name, consumer.name, *keys[0], *keys[-1]),
            )

    async def _redeliver(
        self, subscription: Subscription, search: Search, keys: list[PositionKey]
    ) -> Position | None:
        """Delivers forgotten entries again; returns the first that is left for the next group, because others were large."""
        topic, cursor, dispatcher = subscription.topic, subscription.cursor, search.dispatcher
        entries, unread = await self._read(subscription, keys)
        # Much may have happened while the entries were read: an acknowledgement, or a leave of all consumers.
        if serving_dispatcher(subscription) is not dispatcher:
            return unread
        entries = [
            entry
            for entry in entries
            if not cursor.acks.is_acknowledged(key := entry.position)
            and place_of(subscription, dispatcher, key).place is Place.FORGOTTEN
        ]
        if not entries:
            return unread
        dispatcher.deliver_forgotten(entries)
        search.watch.count_redelivered(len(entries), cursor.context.environment.wall_ms())
        log.warning(
            "! %d entries of subscription %s on %s were unacknowledged and pending at no consumer; they are delivered again,"
            " from %d:%d to %d:%d",
            *(len(entries), subscription.name, topic.name, *entries[0].position, *entries[-1].position),
        )
        return unread

    async def _read(
        self, subscription: Subscription, keys: list[PositionKey]
    ) -> tuple[list[Entry], Position | None]:
        """Returns those of the entries that can be read and may be delivered now, in order, and the first unread one."""
        topic, cursor = subscription.topic, subscription.cursor
        missing, found, size = set(keys), list[Entry](), 0
        unread: Position | None = None
        for one in joined(keys, topic.ledger.ledgers.average_entry_bytes):
            if size >= GROUP_BYTES:
                unread = Position(one.ledger_id, one.first)
                break
            try:
                entries = await topic.ledger.read_readable(one)
            except BrokerError as error:
                log.warning("! lost entries %s of %s cannot be read: %s", one, topic.name, error)
                continue
            size += sum([entry.size for entry in entries])
            entries = [entry for entry in entries if entry.position in missing]
            missing.difference_update([entry.position for entry in entries])
            if topic.delays.looks_in(one.ledger_id):
                entries, _ = topic.delays.hold_back(entries)
            if cursor.context.view is not None:
                entries, _, dead = cursor.context.view.divide(cursor.name, entries)
                if dead:
                    cursor.acknowledge(dead)
            found += entries
        cursor.skip_lost(sorted(missing))
        return found, unread


def joined(keys: list[PositionKey], average_bytes: Callable[[int], int]) -> list[EntryRange]:
    """Returns ranges to read that have all the entries, which are given in order; short gaps are read too.

    `average_bytes` of an entry of a ledger, at least 1, by its id."""
    ranges: list[EntryRange] = []
    entries_max: dict[int, int] = {}
    for ledger_id in {ledger_id for ledger_id, _ in keys}:
        fitting = GROUP_BYTES // average_bytes(ledger_id)
        entries_max[ledger_id] = min(READ_ENTRIES_MAX, max(1, fitting))
    for ledger_id, entry_id in keys:
        if ranges:
            one = ranges[-1]
            if (
                one.ledger_id == ledger_id
                and entry_id - one.last <= GAP_MAX + 1
                and entry_id - one.first < entries_max[ledger_id]
            ):
                ranges[-1] = one._replace(last=entry_id)
                continue
        ranges.append(EntryRange(ledger_id, entry_id, entry_id))
    return ranges
