"""SharedDispatcher: Shared subscriptions, where each entry goes to one of many consumers.

Every entry that was sent is pending at its consumer until it is acknowledged. What must be sent again (negative
acknowledgement, timeout, a consumer that left) waits in the replay and goes out before new entries. Consumers of
the best priority with permits take turns; a consumer that cannot take more is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from broker.model.entry import Entry
from broker.model.position import Position
from broker.service.consumer import Consumer
from broker.service.dispatcher import Dispatcher, messages_left, messages_of
from broker.service.replay import Key, Replay

ROUNDS_PER_TURN = 8
_by_priority = attrgetter("options.priority")


class SharedDispatcher(Dispatcher):
    __slots__ = ("_fetched", "_fetching", "_next", "blocked", "redeliveries", "replay", "unacked")

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.replay = Replay()
        self.redeliveries: dict[Key, int] = {}
        """How often a position was asked for again; forgotten when it is acknowledged. That a consumer left does not
        count, as recorded of Pulsar 4.2."""
        self.unacked = 0
        """Messages pending at all consumers."""
        self.blocked = False
        """Too many of them; nothing is sent until half are acknowledged."""
        self._next = 0
        self._fetched: list[Entry] = []
        """Entries of the replay that storage has answered, until the next look at the situation."""
        self._fetching: dict[Key, int] = {}
        """Positions that storage is asked for, with their hashes."""

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        if not self.consumers:
            self._start_over()
        self.consumers.append(consumer)
        self.consumers.sort(key=_by_priority)

    def _start_over(self) -> None:
        """The first consumer: nothing is pending anywhere, so everything unacknowledged is read afresh."""
        self._forget_replay()
        self._fetched.clear()
        self.cursor.rewind()

    def remove_consumer(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self._uncount(consumer, consumer.unacked)
        if self.consumers:
            self._replay_pending(consumer, list(consumer.pending))
        else:  # Whoever comes next begins at the first unacknowledged entry, so nothing waits for a replay.
            self._forget_replay()
            self.redeliveries.clear()
        consumer.pending.clear()
        consumer.hashes.clear()
        self.wake()

    def _replay_pending(self, consumer: Consumer, keys: list[Key]) -> None:
        self._expect_again(keys)
        self.replay.add(keys)

    # What waits in the replay and is cached has this cursor's claim, each position one: the cache keeps it (PIP-430).

    def _expect_again(self, keys: Iterable[Key]) -> None:
        """They were sent and go to the replay."""
        cursor = self.cursor
        cursor.ledger.ground.caches.expect_redelivery(cursor.reader, cursor.ledger.cache.present(keys))

    def _keep_back(self, keys: Iterable[Key]) -> None:
        """They go to the replay without having been sent."""
        cursor = self.cursor
        cursor.ledger.ground.caches.postpone_delivery(cursor.reader, cursor.ledger.cache.present(keys))

    def _forget_replay(self) -> None:
        self.cursor.ledger.cache.drop_redeliveries(self.cursor.reader, self.replay.keys())
        self.replay.clear()

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
            entries = self.cursor.take(wanted, self.settings.read_bytes_max)
            if not entries:
                self._read_more(wanted)
                return
            rest = self._hand_out(entries)
            if rest:
                self.cursor.give_back(rest[0].position, rest)
        self.wake()

    def _permits(self) -> int:
        """Messages that consumers can take now, within the subscription's limit of unacknowledged ones."""
        if self.blocked:
            return 0
        permits = 0
        for consumer in self.consumers:
            if consumer.permits > 0 and not consumer.blocked:
                if consumer.port.writable:
                    permits += self._room_of(consumer)
                else:
                    consumer.port.when_writable(self.wake)
        return permits

    def _room_of(self, consumer: Consumer) -> int:
        """Messages that it may be sent now: its permits, within its limit of unacknowledged ones."""
        limit = self.settings.unacked_max_per_consumer
        return min(consumer.permits, limit - consumer.unacked) if limit else consumer.permits

    def _entries_for(self, permits: int) -> int:
        fewest = min((consumer.messages_per_entry for consumer in self.consumers), default=1.0)
        return max(1, int(permits / max(1.0, fewest)))

    def _hand_out_replay(self, wanted: int) -> bool:
        """Send what waits for its redelivery. Whether anything was sent, so that new entries come later."""
        entries = self._from_replay(self.replay.take(max(0, wanted - len(self._fetching))))
        if not entries:
            return False
        rest = self._hand_out(entries)
        if rest:
            self._wait_again({(entry.ledger_id, entry.entry_id): 0 for entry in rest})
        return len(rest) < len(entries)

    def _from_replay(self, taken: dict[Key, int]) -> list[Entry]:
        """What was fetched before, and of `taken` what is cached; the rest is fetched and wakes us."""
        entries, self._fetched = self._fetched, []
        entries = [entry for entry in entries if not self.cursor.is_acknowledged(entry.position)]
        if taken:
            found, missing = self.cursor.get_positions([Position(*key) for key in taken])
            entries += found
            if missing:
                self._fetch(missing, {key: taken[key] for key in missing})
        return entries

    def _fetch(self, asked: list[Position], hashes: dict[Key, int]) -> None:
        """Read these from storage, unless reads have failed just now: then they go on waiting."""
        if self._retrying:
            self._wait_again(hashes)
            return
        self._fetching.update(hashes)
        self.cursor.request_positions(asked, lambda entries: self._fetch_done(asked, entries))

    def _fetch_done(self, asked: list[Position], entries: list[Entry]) -> None:
        """What could not be read waits in the replay again, unless nobody is there: who comes begins anew."""
        missing: dict[Key, int] = {key: self._fetching.pop(key) for key in asked}
        for entry in entries:
            del missing[entry.position]
        if self.consumers:
            self._fetched += entries
            self._wait_again(missing)
        if self.cursor.last_error is None:
            self._retry_ms = 0
        else:
            self._back_off()
        self.wake()

    def _put_off_fetched(self) -> None:
        """Nobody can take what was fetched. It is not kept here, since what was read is within a budget; the
        cache is likely to have it when its turn comes."""
        fetched, self._fetched = self._fetched, []
        self._wait_again({entry.position: self._hash_of(entry) for entry in fetched})

    def _wait_again(self, hashes: Mapping[Key, int]) -> None:
        """Positions that were taken out of the replay and not sent."""
        self._keep_back(hashes)
        for key, sticky_hash in hashes.items():
            self.replay.add((key,), sticky_hash)

    def _hash_of(self, entry: Entry) -> int:
        """Under which hash the entry waits in the replay; 0 where keys do not matter."""
        return 0

    def _hand_out(self, entries: list[Entry]) -> list[Entry]:
        """Deal the entries in turns; answers those that nobody can take."""
        at = 0
        while at < len(entries):
            consumer = self._next_consumer()
            if consumer is None:
                break
            limit = self.settings.round_robin_entries_max
            share = entries[at : at + limit] if at or len(entries) > limit else entries
            at += self._send(consumer, share)
        return entries[at:]

    def _next_consumer(self) -> Consumer | None:
        """The next in turn among those of the best priority that can take a message."""
        consumers = self.consumers
        count = len(consumers)
        if count == 1:
            return consumers[0] if consumers[0].may_receive() else None
        chosen: Consumer | None = None
        for step in range(count):
            index = (self._next + step) % count
            consumer = consumers[index]
            if chosen is not None and consumer.options.priority >= chosen.options.priority:
                continue
            if consumer.may_receive():
                chosen = consumer
                place = index
        if chosen is not None:
            self._next = place + 1
        return chosen

    def _send(self, consumer: Consumer, entries: list[Entry]) -> int:
        """Deliver from the front until there is no more room; answers how many went."""
        room = self._room_of(consumer)
        pending = consumer.pending
        partly_acknowledged = self.cursor.partly_acknowledged
        redeliveries = self.redeliveries
        plain: list[Entry] = []
        total = messages = size = sent = 0
        for entry in entries:
            if total >= room:
                break
            sent += 1
            key = (entry.ledger_id, entry.entry_id)
            left = entry.messages or messages_of(entry)
            if redeliveries or partly_acknowledged:
                ack_set = self.cursor.ack_set_of(entry.position) or ()
                count = redeliveries.get(key, 0)
                if ack_set or count:
                    left = messages_left(ack_set) if ack_set else left
                    self._send_plain(consumer, plain, messages, size)
                    plain, messages, size = [], 0, 0
                    consumer.deliver_one(
                        entry, left, count if self.settings.redelivery_tracker else 0, ack_set
                    )
                    pending[key] = left
                    total += left
                    continue
            pending[key] = left
            total += left
            messages += left
            size += entry.size
            plain.append(entry)
        self._send_plain(consumer, plain, messages, size)
        self._count_sent(consumer, entries if sent == len(entries) else entries[:sent], total)
        return sent

    def _send_plain(self, consumer: Consumer, entries: list[Entry], messages: int, size: int) -> None:
        if entries:
            consumer.deliver(entries, messages, size)

    def _count_sent(self, consumer: Consumer, entries: list[Entry], messages: int) -> None:
        self.dispatched_entries += len(entries)
        self._handed_over(entries)
        self.unacked += messages
        consumer.unacked += messages
        limit = self.settings.unacked_max_per_consumer
        if limit and consumer.unacked >= limit:
            consumer.blocked = True
        limit = self.settings.unacked_max_per_subscription
        if limit and self.unacked >= limit:
            self.blocked = True

    # Acknowledgements and redelivery

    def settled(self, consumer: Consumer, key: Key, remaining: int = 0) -> None:
        """An acknowledgement has arrived: `remaining` messages of the entry are still pending."""
        owner = consumer if key in consumer.pending else self._owner(key)
        if owner is not None:
            before = owner.pending[key]
            remaining = min(remaining, before)
            if remaining:
                owner.pending[key] = remaining
            else:
                self._drop_pending(owner, key)
            self._uncount(owner, before - remaining)
        if not remaining:
            self.redeliveries.pop(key, None)
            if len(self.replay) and self.replay.discard(key):
                self.cursor.ledger.cache.drop_redeliveries(self.cursor.reader, (key,))

    def _owner(self, key: Key) -> Consumer | None:
        return next((consumer for consumer in self.consumers if key in consumer.pending), None)

    def _drop_pending(self, owner: Consumer, key: Key) -> None:
        del owner.pending[key]

    def _uncount(self, owner: Consumer, messages: int) -> None:
        self.unacked -= messages
        owner.unacked -= messages
        if owner.blocked and owner.unacked <= self.settings.unacked_max_per_consumer // 2:
            owner.blocked = False
            self.wake()
        if self.blocked and self.unacked <= self.settings.unacked_max_per_subscription // 2:
            self.blocked = False
            self.wake()

    def redeliver(self, consumer: Consumer, keys: Iterable[Key] | None) -> None:
        """Send these positions again, or with None all that are pending at the consumer."""
        asked = consumer.pending if keys is None else dict.fromkeys(keys)
        wanted = [key for key in asked if key in consumer.pending]
        self._replay_pending(consumer, wanted)
        for key in wanted:
            self._uncount(consumer, consumer.pending[key])
            self._drop_pending(consumer, key)
            self.redeliveries[key] = self.redeliveries.get(key, 0) + 1
        consumer.blocked = False
        self.wake()
