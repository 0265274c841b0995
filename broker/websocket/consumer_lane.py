"""ConsumerLane: one topic or partition that a session consumes; the service's ConsumerPort for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from broker.service.consumer import Consumer, SubscriptionType
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.topic import SubscriptionLike, Topic
from broker.websocket.errors import RESTART
from broker.websocket.unacked import SentEntry
from foundation.model.entry import Entry
from foundation.model.position import Position, PositionKey

PROTOCOL_VERSION: Final = 21
"""Shown in statistics; a WebSocket needs nothing of an older one."""
LARGE_MESSAGES_MAX: Final = 10
"""Large messages of one lane whose parts are not complete, as in Pulsar's clients."""
LARGE_BYTES_MAX: Final = 32 << 20
"""Bytes of such parts. The oldest ones are dropped above it, and delivered again to the next session."""


class LaneSession(Protocol):
    """The session that a lane belongs to."""

    address: str
    """`host:port` of the client."""

    @property
    def takes_more(self) -> bool:
        """False while too much waits for the client."""
        ...

    def when_takes_more(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when it takes more."""
        ...

    def enqueue(self, lane: ConsumerLane, entry: Entry, redeliveries: int, ack_set: Sequence[int]) -> None:
        """Adds an entry."""
        ...

    def pump(self) -> None:
        """Sends what may be sent."""
        ...

    def end(self, code: int, reason: str) -> None:
        """Closes the WebSocket."""
        ...


class ConsumerLane:
    """A ConsumerPort of a WebSocket. See `broker/service/ports.py` for the port's methods."""

    consumer: Consumer
    """Set when it is subscribed."""
    subscription: SubscriptionLike
    """Set when it is subscribed."""

    def __init__(self, session: LaneSession, topic: Topic, partition: int) -> None:
        """`partition`: index that message ids carry, -1 = none."""
        self.topic = topic
        """The topic or partition."""
        self.partition = partition
        """Index that message ids carry, -1 = none."""
        self.protocol_version = PROTOCOL_VERSION
        """For statistics."""
        self.address = session.address
        """`host:port` of the client."""
        self.ended = False
        """True once the topic is terminated and everything is acknowledged."""
        self._session = session
        # By the id of a large message: positions and bytes of its first parts.
        self._parts: dict[str, tuple[list[PositionKey], list[bytes]]] = {}

    @property
    def keeps_positions(self) -> bool:
        """True for a persistent topic; acknowledgements mean nothing on others."""
        return isinstance(self.subscription, Subscription)

    @property
    def redelivers_single(self) -> bool:
        """True when single entries can be sent again; on other subscriptions everything from the first one is."""
        return self.consumer.options.kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)

    def flow(self, permits: int) -> None:
        """Lets the topic deliver so many more messages."""
        if permits:
            self.subscription.flow(self.consumer, permits)

    def acknowledge(self, keys: Sequence[PositionKey]) -> None:
        """Acknowledges whole entries."""
        if isinstance(self.subscription, Subscription):
            self.subscription.acknowledge(self.consumer, keys)

    def pass_over(self, keys: Sequence[PositionKey]) -> None:
        """Takes note of an entry of which nothing is sent; `keys` are acknowledged."""
        if keys:
            self.acknowledge(keys)
        # Its permit would be missing otherwise, also where the client permits each message.
        self.flow(1)

    def acknowledge_part(self, key: PositionKey, ack_set: Sequence[int], batch_size: int) -> None:
        """Acknowledges messages of a batch, where the broker keeps that."""
        if isinstance(self.subscription, Subscription):
            self.subscription.acknowledge_batch(self.consumer, Position(*key), ack_set, batch_size)

    def read_up_to(self, key: PositionKey) -> None:
        """Moves a reader's cursor, so that the topic knows its backlog."""
        if isinstance(self.subscription, Subscription):
            self.subscription.acknowledge_cumulative(self.consumer, Position(*key), None)

    def redeliver(self, keys: Iterable[PositionKey] | None) -> None:
        """Asks for another delivery; None = of everything that is not acknowledged."""
        if isinstance(self.subscription, Subscription):
            self.subscription.redeliver(self.consumer, keys, None)

    def leave(self) -> None:
        """Removes the consumer from its subscription."""
        self.subscription.remove_consumer(self.consumer)

    # Large messages

    def keep_part(self, uuid: str, number: int, key: PositionKey, part: bytes) -> None:
        """Keeps a part of a large message. Parts come in their order; others are dropped."""
        if number == 0:
            self._parts.pop(uuid, None)
            self._parts[uuid] = ([], [])
        kept = self._parts.get(uuid)
        if kept is None or len(kept[1]) != number:
            return
        kept[0].append(key)
        kept[1].append(part)
        while len(self._parts) > LARGE_MESSAGES_MAX or self._kept_bytes() > LARGE_BYTES_MAX:
            del self._parts[next(iter(self._parts))]

    def take_parts(self, uuid: str, count: int) -> tuple[list[PositionKey], list[bytes]] | None:
        """Returns positions and bytes of all parts but the last; None when some are missing."""
        kept = self._parts.pop(uuid, None)
        return kept if kept is not None and len(kept[1]) == count - 1 else None

    def forget_parts(self) -> None:
        """Drops all parts, because the messages are delivered again from the first part on."""
        self._parts.clear()

    def _kept_bytes(self) -> int:
        return sum(len(part) for _, parts in self._parts.values() for part in parts)

    # Port

    @property
    def writable(self) -> bool:
        """False while too much waits for the client."""
        return self._session.takes_more

    def when_writable(self, wake: Callable[[], None]) -> None:
        """Leaves the call to the session."""
        self._session.when_takes_more(wake)

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Adds entries to the queue of the session."""
        for entry in entries:
            self._session.enqueue(self, entry, 0, ())
        self._session.pump()

    def deliver_one(self, entry: Entry, redelivery_count: int, ack_set: Sequence[int]) -> None:
        """Adds one entry to the queue of the session."""
        self._session.enqueue(self, entry, redelivery_count, ack_set)
        self._session.pump()

    def active_changed(self, *, active: bool) -> None:
        """Does nothing: the API has no form for it."""

    def reached_end_of_topic(self) -> None:
        """Notes the end, for the question `isEndOfTopic`."""
        self.ended = True

    def renew_epoch(self, epoch: int) -> None:
        """Never called: these consumers have no epoch."""

    def closed_by_broker(self) -> None:
        """Ends the session; the client connects again."""
        self._session.end(RESTART, f"the consumer on {self.topic.name} was closed; connect again")


SentOnLane = SentEntry[ConsumerLane]
"""An unacknowledged entry of a lane."""
