"""ByKey: sends all messages of a key to one consumer, in order (Key_Shared, PIP-379).

The selector names the owner of each key hash. Three things keep an entry from its owner: the owner cannot take a message
now, another consumer still has unacknowledged messages of the hash (the hash is draining), or an older entry of the hash
waits for redelivery. Such an entry waits for redelivery too, and reading goes on after it as far as the look-ahead
limits allow.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from broker.service.consumer import Consumer, KeySharedMeta
from broker.service.entry_facts import facts_of
from broker.service.settings import ServiceSettings
from broker.service.subscriptions.dispatch.draining_hashes import DrainingHashes
from broker.service.subscriptions.dispatch.key_shared import (
    AutoSplitSelector,
    ConsistentHashingSelector,
    StickyRangesSelector,
    sticky_hash_of,
)
from foundation.model.entry import Entry
from foundation.model.errors import ConsumerBusy
from foundation.model.position import PositionKey
from protocol.message_metadata import NO_KEY

if TYPE_CHECKING:
    from broker.service.subscriptions.dispatch.consumer_set import ConsumerSet
    from broker.service.subscriptions.dispatch.redelivery import Redeliverer
    from broker.service.subscriptions.dispatch.shared_delivery import SharedDelivery

Selector = AutoSplitSelector | ConsistentHashingSelector | StickyRangesSelector
"""Assigns key hashes to consumers."""

_by_position = attrgetter("ledger_id", "entry_id")


def selector_for(meta: KeySharedMeta, settings: ServiceSettings) -> Selector:
    """Returns a new selector for the first consumer's mode."""
    if meta.sticky:
        return StickyRangesSelector()
    if settings.key_shared_consistent_hashing:
        return ConsistentHashingSelector(settings.key_shared_points)
    return AutoSplitSelector()


def hash_in(selector: Selector, entry: Entry) -> int:
    """Returns the entry's key hash in the selector's range, at least 1."""
    facts = facts_of(entry)
    key = NO_KEY if facts is None else facts.key
    return sticky_hash_of(key, selector.range_size, selector.range_start)


class ByKey:
    """Key_Shared: each key hash has one owner among the consumers."""

    __slots__ = (
        "_consumers",
        "_delivery",
        "_draining",
        "_out_of_order",
        "_redelivery",
        "meta",
        "selector",
        "settings",
    )

    def __init__(
        self,
        *,
        settings: ServiceSettings,
        meta: KeySharedMeta,
        selector: Selector,
        consumers: ConsumerSet,
        redelivery: Redeliverer,
        delivery: SharedDelivery,
    ) -> None:
        """`meta` is that of the first consumer; all later ones must bring the same mode."""
        self.settings = settings
        """Current values, renewed by the dispatcher."""
        self.meta = meta
        """Mode of the first consumer."""
        # Without PIP-379's rules: the client gave up order, or declared ranges that never change their owner.
        self._out_of_order = meta.out_of_order or meta.sticky
        self.selector = selector
        """Names the owner of each key hash."""
        self._draining = DrainingHashes()
        self._consumers = consumers
        self._redelivery = redelivery
        self._delivery = delivery

    # Consumers

    def add(self, consumer: Consumer) -> None:
        """Gives the consumer its share of the key hashes; it joins the set of consumers next.

        ConsumerBusy unless it asks for the same mode and order as the present ones. ConsumerAssignError when its
        hashes do not fit.
        """
        meta = consumer.options.key_shared
        if meta.sticky != self.meta.sticky or meta.out_of_order != self.meta.out_of_order:
            raise ConsumerBusy(
                "Subscription is of different type: the active key_shared policy differs from the connecting consumer's"
            )
        selector = self.selector
        if isinstance(selector, StickyRangesSelector):
            selector.add(consumer, meta.ranges)
        else:
            selector.add(consumer, consumer.name)
        # Its own from here on: others share the dict that stays empty.
        consumer.hashes = {}
        self._find_draining()

    def remove(self, consumer: Consumer) -> None:
        """Gives a departed consumer's key hashes to the others."""
        self.selector.remove(consumer)
        self._find_draining()

    def _find_draining(self) -> None:
        """Collects the hashes whose former owner has unacknowledged messages.

        This forgets which consumers wait for a hash, so the dispatcher has to wake and try them all again.
        """
        if self._out_of_order:
            return
        # Built anew: each joining or leaving consumer can change the owner of any hash.
        self._draining = DrainingHashes()
        for consumer in self._consumers.consumers:
            for sticky_hash in consumer.hashes.values():
                if self.selector.select(sticky_hash) is not consumer:
                    self._draining.add(consumer, sticky_hash)

    def settled(self, consumer: Consumer, key: PositionKey) -> bool:
        """Returns True when the hash is free now and its owner waited."""
        sticky_hash = consumer.hashes.pop(key, 0)
        return bool(sticky_hash) and self._draining.settled(consumer, sticky_hash)

    # Entries

    def may_read_on(self) -> bool:
        """Returns False when too many positions wait for redelivery.

        The look-ahead limits say how many are too many. Where both are off, the limits of unacknowledged messages hold
        instead (PIP-379): without any limit one blocked key would fill the memory with positions.
        """
        settings = self.settings
        count = len(self._consumers.consumers)
        limits = [settings.look_ahead_per_consumer * count, settings.look_ahead_per_subscription]
        if max(limits) <= 0:
            limits = [settings.unacked_max_per_consumer * count, settings.unacked_max_per_subscription]
        limits = [limit for limit in limits if limit > 0]
        return not limits or len(self._redelivery.queue) < min(limits)

    def redelivery_filter(self) -> Callable[[PositionKey, int], bool]:
        """Returns a filter for the positions to read next.

        It accepts about as many per consumer as the consumer may be sent. More would be read in vain: their entries
        could only be queued again.
        """
        capacities: dict[Consumer, int] = {}
        fetching = () if self._out_of_order else set(self._redelivery.fetching.values())

        def can_be_sent(_key: PositionKey, sticky_hash: int) -> bool:
            if 0 in fetching or not sticky_hash:
                # A delayed entry that is due: its key is known once it was read. One read of such at a time keeps order.
                return not fetching
            consumer = self._owner(sticky_hash)
            if consumer is None:
                return False
            if not self._has_capacity(consumer, capacities):
                return False
            # A hash whose older messages are being fetched waits as a whole, so that none overtakes another.
            if not self._out_of_order and (
                sticky_hash in fetching or self._draining.blocks(consumer, sticky_hash)
            ):
                return False
            capacities[consumer] -= max(1, int(consumer.messages_per_entry))
            return True

        return can_be_sent

    def send(self, entries: list[Entry], *, again: bool) -> list[Entry]:
        """Sends each entry to the owner of its key; entries of one consumer are sent together."""
        if again:
            # Fetched entries and cached ones come as two lists; a key's entries must be sent in their order.
            entries.sort(key=_by_position)
        shares: dict[Consumer, list[Entry]] = {}
        unsent: list[Entry] = []
        capacities: dict[Consumer, int] = {}
        # Once an entry of a hash has to wait, all later ones of the hash in this run wait too.
        blocked: set[int] = set()
        hash_of = self._redelivery.hash_of
        for entry in entries:
            sticky_hash = hash_of(entry)
            consumer = self._owner(sticky_hash)
            key = (entry.ledger_id, entry.entry_id)
            if (
                consumer is None
                or sticky_hash in blocked
                or not self._has_capacity(consumer, capacities)
                or not self.in_order(consumer, key, sticky_hash, again=again)
            ):
                blocked.add(sticky_hash)
                unsent.append(entry)
                continue
            # `messages` is 0 before the first count; `SharedDelivery` counts exactly when it sends.
            capacities[consumer] -= max(1, entry.messages)
            # `_find_draining` goes by these hashes when a consumer joins or leaves.
            consumer.hashes[key] = sticky_hash
            shares.setdefault(consumer, []).append(entry)
        for consumer, share in shares.items():
            sent = self._delivery.send(consumer, share)
            # `capacities` counts an unread entry as one message, so a batch may exceed what is left.
            for entry in share[sent:]:
                del consumer.hashes[entry.ledger_id, entry.entry_id]
                unsent.append(entry)
        return unsent

    def in_order(self, consumer: Consumer, key: PositionKey, sticky_hash: int, *, again: bool) -> bool:
        """Returns False when sending would break the order of the key."""
        if self._out_of_order:
            return True
        if self._draining.blocks(consumer, sticky_hash):
            return False
        redelivery = self._redelivery
        if redelivery.fetching and redelivery.older_is_fetched(key, sticky_hash):
            return False
        return again or not redelivery.queue.waits(sticky_hash)

    def _owner(self, sticky_hash: int) -> Consumer | None:
        return cast("Consumer | None", self.selector.select(sticky_hash))

    def _has_capacity(self, consumer: Consumer, capacities: dict[Consumer, int]) -> bool:
        """`capacities`: messages that each consumer may still be sent in this pass; filled on first use."""
        if consumer not in capacities:
            capacities[consumer] = self._consumers.capacity_of(consumer) if consumer.may_receive() else 0
        return capacities[consumer] > 0
