"""KeySharedDispatcher: Key_Shared subscriptions, where all messages of a key go to one consumer, in order (PIP-379).

The selector says whose a key's hash is. An entry that its consumer cannot get now (no permits, the hash still
drains at its former owner, an older message of the hash waits) goes to the replay, and reading looks ahead past it
as far as the settings allow.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import cast

from broker.model.entry import Entry
from broker.model.errors import ConsumerBusy
from broker.service.consumer import Consumer, KeySharedMeta
from broker.service.dispatcher import facts_of
from broker.service.draining_hashes import DrainingHashes
from broker.service.key_shared import (
    AutoSplitSelector,
    ConsistentHashingSelector,
    StickyRangesSelector,
    sticky_hash_of,
)
from broker.service.replay import Key
from broker.service.shared_dispatcher import SharedDispatcher
from protocol.message_metadata import NO_KEY

ROUNDS_PER_TURN = 8

Selector = AutoSplitSelector | ConsistentHashingSelector | StickyRangesSelector


class KeySharedDispatcher(SharedDispatcher):
    __slots__ = ("_draining", "_out_of_order", "_selector", "meta")

    def __init__(self, *args: object, meta: KeySharedMeta, **named: object) -> None:
        super().__init__(*args, **named)
        self.meta = meta
        self._out_of_order = meta.out_of_order or meta.sticky
        """Without PIP-379's rules: the client gave up order, or ranges never change hands."""
        self._selector: Selector = self._new_selector()
        self._draining = DrainingHashes()

    def _new_selector(self) -> Selector:
        if self.meta.sticky:
            return StickyRangesSelector()
        if self.settings.key_shared_consistent_hashing:
            return ConsistentHashingSelector(self.settings.key_shared_points)
        return AutoSplitSelector()

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        meta = consumer.options.key_shared
        if meta.sticky != self.meta.sticky or meta.out_of_order != self.meta.out_of_order:
            raise ConsumerBusy(
                "Subscription is of different type: the active key_shared policy differs from the connecting consumer's"
            )
        if not self.consumers:
            self._start_over()
        self._add_to_selector(consumer)
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: c.options.priority)
        self._drain_moved_hashes()
        self.wake()

    def _add_to_selector(self, consumer: Consumer) -> None:
        selector = self._selector
        if isinstance(selector, StickyRangesSelector):
            selector.add(consumer, consumer.options.key_shared.ranges)
        else:
            selector.add(consumer, consumer.name)

    def remove_consumer(self, consumer: Consumer) -> None:
        self._selector.remove(consumer)
        self._draining.forget(consumer)
        super().remove_consumer(consumer)
        self._drain_moved_hashes()

    def _drain_moved_hashes(self) -> None:
        """What is pending under a hash that belongs to somebody else now must be settled first.

        Who waited for a hash is forgotten, so the caller wakes the dispatcher to find out anew.
        """
        if self._out_of_order:
            return
        self._draining = DrainingHashes()
        for consumer in self.consumers:
            for sticky_hash in consumer.hashes.values():
                if self._selector.select(sticky_hash) is not consumer:
                    self._draining.add(consumer, sticky_hash)

    def _replay_pending(self, consumer: Consumer, keys: list[Key]) -> None:
        self._expect_again(keys)
        for key in keys:
            self.replay.add((key,), consumer.hashes.get(key, 0))

    def _drop_pending(self, owner: Consumer, key: Key) -> None:
        super()._drop_pending(owner, key)
        sticky_hash = owner.hashes.pop(key, 0)
        if sticky_hash and self._draining.settled(owner, sticky_hash):
            self.wake()

    # Dispatch

    def run_once(self, now_ns: int) -> None:
        for _ in range(ROUNDS_PER_TURN):
            permits = self._permits()
            if permits <= 0:
                self._put_off_fetched()
                return
            wanted = min(self._entries_for(permits), self.settings.read_entries_max)
            if self._hand_out_replay(wanted):
                continue
            if self._looked_far_enough():
                return
            entries = self.cursor.take(wanted, self.settings.read_bytes_max)
            if not entries:
                self._read_more(wanted)
                return
            self._deal(entries, from_replay=False)
        self.wake()

    def _looked_far_enough(self) -> bool:
        """Where both limits are off, those of unacknowledged messages take their place (PIP-379)."""
        settings = self.settings
        count = len(self.consumers)
        limits = [settings.look_ahead_per_consumer * count, settings.look_ahead_per_subscription]
        if max(limits) <= 0:
            limits = [settings.unacked_max_per_consumer * count, settings.unacked_max_per_subscription]
        limits = [limit for limit in limits if limit > 0]
        return bool(limits) and len(self.replay) >= min(limits)

    def _hand_out_replay(self, wanted: int) -> bool:
        before = self.dispatched_entries
        room = max(0, wanted - len(self._fetching))
        entries = self._from_replay(self.replay.take(room, self._filter()))
        if entries:
            entries.sort(key=attrgetter("ledger_id", "entry_id"))
            self._deal(entries, from_replay=True)
        return self.dispatched_entries > before

    def _filter(self) -> Callable[[Key, int], bool]:
        """What may be taken out of the replay in one go: for each consumer about as much as it may be sent, since what
        is taken and not sent has been read in vain."""
        room: dict[Consumer, int] = {}
        fetching = () if self._out_of_order else set(self._fetching.values())

        def may_go(_key: Key, sticky_hash: int) -> bool:
            consumer = self._select(sticky_hash)
            if consumer is None:
                return False
            if not self._has_room(consumer, room):
                return False
            # A hash whose older messages are being fetched waits as a whole, so that none overtakes another.
            if not self._out_of_order and (
                sticky_hash in fetching or self._draining.blocks(consumer, sticky_hash)
            ):
                return False
            room[consumer] -= max(1, int(consumer.messages_per_entry))
            return True

        return may_go

    def _select(self, sticky_hash: int) -> Consumer | None:
        return cast("Consumer | None", self._selector.select(sticky_hash))

    def _deal(self, entries: list[Entry], *, from_replay: bool) -> None:
        """Each entry to its key's consumer, or to the replay; runs of one consumer go out together."""
        taken: dict[Consumer, list[Entry]] = {}
        kept: list[Entry] = []
        room: dict[Consumer, int] = {}
        blocked: set[int] = set()
        for entry in entries:
            sticky_hash = self._hash_of(entry)
            consumer = self._select(sticky_hash)
            key = (entry.ledger_id, entry.entry_id)
            if (
                consumer is None
                or sticky_hash in blocked
                or not self._may_take(consumer, key, sticky_hash, room, from_replay)
            ):
                blocked.add(sticky_hash)
                self.replay.add((key,), sticky_hash)
                kept.append(entry)
                continue
            room[consumer] -= max(1, entry.messages)
            consumer.hashes[key] = sticky_hash
            taken.setdefault(consumer, []).append(entry)
        for consumer, share in taken.items():
            sent = self._send(consumer, share)
            kept += share[sent:]
            for entry in share[sent:]:
                key = (entry.ledger_id, entry.entry_id)
                self.replay.add((key,), consumer.hashes.pop(key))
        self._keep_back([(entry.ledger_id, entry.entry_id) for entry in kept])

    def _may_take(
        self,
        consumer: Consumer,
        key: Key,
        sticky_hash: int,
        room: dict[Consumer, int],
        from_replay: bool,
    ) -> bool:
        if not self._has_room(consumer, room):
            return False
        if self._out_of_order:
            return True
        if self._draining.blocks(consumer, sticky_hash):
            return False
        if any(waits == sticky_hash and older < key for older, waits in self._fetching.items()):
            return False
        return from_replay or not self.replay.waits(sticky_hash)

    def _has_room(self, consumer: Consumer, room: dict[Consumer, int]) -> bool:
        """`room`: messages that each consumer asked about may still be sent in this go."""
        if consumer not in room:
            room[consumer] = self._room_of(consumer) if consumer.may_receive() else 0
        return room[consumer] > 0

    def _hash_of(self, entry: Entry) -> int:
        facts = facts_of(entry)
        key = NO_KEY if facts is None else facts.key
        return sticky_hash_of(key, self._selector.range_size, self._selector.range_start)
