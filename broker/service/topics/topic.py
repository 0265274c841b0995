"""Topic: the base of persistent and non-persistent topics, with producers, their access modes, and counters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.limits.broker_limits import BrokerLimits, TopicRateLimits
from broker.service.limits.publish_limit import PublishLimit
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import MAX_MESSAGE_SIZE, MAX_PRODUCERS, SUBSCRIPTION_TYPES
from broker.service.ports import ConsumerPort, ProducerPort, Sends
from broker.service.producer import Producer, TransactionGate
from broker.service.settings import ServiceSettings
from broker.service.successor import MayMove, Successor
from broker.service.topics.producer_access import ProducerAccess
from foundation.model.errors import (
    BrokerError,
    MetadataError,
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    ServiceNotReady,
    TopicTerminated,
)
from foundation.model.topic_name import NON_PERSISTENT, PERSISTENT, TopicName
from protocol.message_metadata import read_facts


class SubscriptionLike(Protocol):
    """A subscription as a connection uses it, persistent or not."""

    name: str
    """Name given in SUBSCRIBE."""

    @property
    def topic(self) -> MayMove:
        """The topic that is subscribed to."""
        ...

    @property
    def consumers(self) -> list[Consumer]:
        """Connected consumers."""
        ...

    def remove_consumer(self, consumer: Consumer) -> None:
        """Removes a consumer that closed or lost its connection; ignored for an unknown one."""
        ...

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Adds permits that the consumer sent."""
        ...


class EncryptionRequired(NotAllowed):
    """The namespace demands encrypted messages; Pulsar answers this with MetadataError's code."""

    code = 1
    """MetadataError on the wire."""


class TopicBusy(MetadataError):
    """Clients are connected to a topic that is to be deleted."""

    status = 412
    """HTTP status of the answer."""


class Topic:
    """Accepts and removes producers; the subclasses store and deliver messages."""

    __slots__ = (
        "access",
        "asked",
        "bytes_in",
        "closed",
        "encryption_required",
        "entries_in",
        "message_bytes_max",
        "messages_in",
        "name",
        "policies",
        "publish_limits",
        "publish_rate_limited",
        "rates",
        "requests",
        "settings",
        "single_sends",
        "successor",
        "used_at_ns",
    )

    transactions: TransactionGate
    """Admits messages of transactions; the subclass sets it."""
    subscriptions: Mapping[str, SubscriptionLike]
    """Open subscriptions by name; the subclass fills it."""

    def __init__(
        self, name: TopicName, settings: ServiceSettings, policies: EffectivePolicies, limits: BrokerLimits
    ) -> None:
        self.name = name
        """Full name, with the partition's suffix if there is one."""
        self.settings = settings
        """Current values, renewed by `reconfigure`."""
        self.policies = policies
        """Limits and permissions, shared by all topics."""
        self.access = ProducerAccess()
        """Producers, and those that wait for exclusive access."""
        self.message_bytes_max = 0
        """Bytes of one SEND that the topic's policy allows; 0 = no limit but the connection's."""
        self.encryption_required = False
        """Producers and messages that are not encrypted are refused."""
        self.rates = TopicRateLimits(limits, self)
        """Rates of publishing, delivering and subscribing."""
        self.publish_limits: tuple[PublishLimit, ...] = ()
        """Limits that each message is counted against; () costs a run one look."""
        self.single_sends = False
        """True where a rule looks at each message: encryption, a size or a rate. No run may then have two SENDs."""
        self.publish_rate_limited = 0
        """SENDs after which a connection had to wait for a publish rate."""
        self.closed = False
        """True from the moment closing or deleting begins; clients must look the topic up again."""
        self.successor: Successor | None = None
        """Of a topic that is closed because another broker may have it next: tells its clients where."""
        self.asked = 0
        """Requests that have asked for the topic since it was opened; a topic that is asked for does not fall asleep."""
        self.requests = 0
        """Requests and rounds that have the topic and still run: it does not fall asleep under them, see `hold`, `held`."""
        self.used_at_ns = 0
        """When the topic was opened, or was last seen in use by `InactiveTopicRounds`; monotonic."""
        self.messages_in = 0
        """Messages that producers sent since the topic was opened, batches counted by their messages."""
        self.bytes_in = 0
        """Bytes of those messages, with metadata and checksum."""
        self.entries_in = 0
        """Entries of those messages: one per SEND."""

    def reconfigure(self, settings: ServiceSettings) -> None:
        """Takes settings that were changed at run time; they hold for connected clients too."""
        self.settings = settings
        self.apply_policies()

    def apply_policies(self) -> None:
        """Renews the values that are kept here because each message needs them."""
        self.message_bytes_max = self.policies.of(self.name, MAX_MESSAGE_SIZE)
        self.encryption_required = self.policies.encryption_required(self.name)
        self.rates.renew(self.policies, self.name)
        self.publish_limits = self.rates.publish_limits()
        self.single_sends = bool(self.encryption_required or self.message_bytes_max or self.publish_limits)

    async def policies_changed(self) -> None:
        """Applies changed policies to the topic and its connected clients.

        Producers that do not encrypt are disconnected when encryption is required; clients above a lowered limit stay.
        """
        self.apply_policies()
        if self.encryption_required:
            for producer in [*self.access.producers.values(), *self.access.waiting]:
                if not producer.encrypted:
                    producer.port.closed_by_broker()
                    await self.remove_producer(producer)

    @property
    def is_terminated(self) -> bool:
        """True when the topic takes no messages any more; only persistent topics can be terminated."""
        return False

    def check_open(self) -> None:
        """Raises ServiceNotReady while the topic is being closed."""
        if self.closed:
            raise ServiceNotReady(f"Topic {self.name} is being closed; look it up again")

    # Producers

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns the highest stored sequence id; -1 for an unknown producer or without deduplication."""
        return -1

    @property
    def is_idle(self) -> bool:
        """True when no client gives the messages a form: the schema of the first consumer may then be added.

        Consumers that take any schema do not count.
        """
        return not self.access.producers and all(
            consumer.options.takes_any_schema
            for subscription in self.subscriptions.values()
            for consumer in subscription.consumers
        )

    def check_may_publish(self, *, encrypted: bool) -> None:
        """Raises TopicTerminated, EncryptionRequired or ServiceNotReady, which refuse a producer before it is added."""
        self.check_open()
        if self.is_terminated:
            raise TopicTerminated("Topic was already terminated")
        if self.encryption_required and not encrypted:
            raise EncryptionRequired(f"Encryption is required in {self.name}")

    async def add_producer(self, producer: Producer) -> None:
        """Grants access or lets the producer wait (`producer.waiting`).

        ProducerBusy, ProducerFenced, TopicTerminated, EncryptionRequired or ServiceNotReady refuse it.
        """
        self.check_may_publish(encrypted=producer.encrypted)
        limit = self.policies.of(self.name, MAX_PRODUCERS)
        if limit and len(self.access.producers) >= limit:
            raise ProducerBusy(f"Topic '{self.name}' reached max producers limit")
        epoch = self.access.epoch
        # Only waiting producers are told. A fenced one finds out with its next SEND.
        fenced = self.access.enter(producer)
        self.producers_changed()
        for other in fenced:
            if other.waiting:
                other.port.failed(ProducerFenced("Fenced out"))
        if self.access.epoch != epoch:
            try:
                await self.keep_epoch()
            except BrokerError:
                await self.remove_producer(producer)
                raise

    async def keep_epoch(self) -> None:
        """Makes the access epoch durable before a producer relies on it; a topic without storage has none to keep."""

    async def remove_producer(self, producer: Producer) -> None:
        """Removes a producer; the one that waited longest may get access.

        A waiting producer whose epoch cannot be made durable is refused, and the next one is tried.
        """
        heir = self.access.leave(producer)
        self.producers_changed()
        while heir is not None:
            try:
                await self.keep_epoch()
            except BrokerError as error:
                heir.port.failed(error)
                heir = self.access.leave(heir)
                continue
            # It may have left again while the epoch was written.
            if self.access.exclusive is heir:
                heir.port.ready(heir.topic_epoch)
            return

    def producers_changed(self) -> None:
        """Notes that a producer has come or left, for the sums over topics."""

    def publish(self, sends: Sends) -> None:
        """Stores or forwards a run of SENDs; the producer's port gets the outcomes.

        Raises BrokerError when the SENDs that are left of it are refused at once; the port gets no outcome of them then.
        """
        raise NotImplementedError

    def check_single(self, sends: Sends) -> None:
        """Applies the rules about single messages to a run of one SEND. EncryptionRequired or NotAllowed refuse it."""
        (body,) = sends.bodies
        if sends.encrypted and self.encryption_required and not read_facts(body).encrypted:
            raise EncryptionRequired("Messages must be encrypted")
        # A chunk passes, as in Pulsar.
        if self.message_bytes_max and sends.size > self.message_bytes_max and not sends.chunk:
            raise NotAllowed("Exceed maximum message size")
        if self.publish_limits:
            self._count_published(sends.port, sends.messages, sends.size)

    def _count_published(self, port: ProducerPort, messages: int, size: int) -> None:
        """Counts one SEND against the publish limits, which may pause its connection."""
        limited = False
        for limit in self.publish_limits:
            # Each limit counts every message, so no `any`, which would stop at the first one.
            limited |= limit.count(port, messages, size)
        self.publish_rate_limited += limited

    # Subscriptions

    def check_type(self, kind: SubscriptionType) -> None:
        """Raises NotAllowed for a subscription type that policies or settings forbid."""
        if kind is SubscriptionType.KEY_SHARED and not self.settings.key_shared:
            raise NotAllowed("Key_Shared subscription is disabled by broker.")
        allowed = self.policies.of(self.name, SUBSCRIPTION_TYPES)
        if kind.label not in allowed:
            raise NotAllowed(
                f"Topic {self.name} does not allow {kind.label} subscriptions; allowed: {', '.join(allowed)}"
            )

    async def subscribe(
        self, port: ConsumerPort, options: SubscribeOptions
    ) -> tuple[SubscriptionLike, Consumer]:
        """Adds a consumer, and its subscription when it is missing. ConsumerBusy, NotAllowed and others refuse."""
        raise NotImplementedError

    def consumers_of(self, subscription: str) -> list[Consumer]:
        """Returns the consumers connected to a subscription; [] for an unknown one."""
        found = self.subscriptions.get(subscription)
        return [] if found is None else found.consumers

    def disconnect_producers(self) -> None:
        """Closes all producers, waiting ones included; their clients look the topic up again."""
        producers = [*self.access.producers.values(), *self.access.waiting]
        for producer in producers:
            producer.port.closed_by_broker()
        if producers:
            self.access.clear()
            self.producers_changed()

    async def close(self) -> None:
        """Disconnects all clients and releases the topic's storage; nothing stored is lost."""
        raise NotImplementedError

    async def abandon(self) -> None:
        """Disconnects all clients of a topic that is being deleted."""
        await self.close()


def hold(topic: Topic) -> None:
    """Keeps the topic awake until the running task, which carries out one request, has ended."""
    task = asyncio.current_task()
    assert task is not None
    topic.requests += 1
    task.add_done_callback(partial(_request_ended, topic))


def _request_ended(topic: Topic, _task: asyncio.Task[object]) -> None:
    topic.requests -= 1


@contextmanager
def held(topic: Topic) -> Iterator[None]:
    """Keeps the topic awake within the block: a task that walks over many topics would keep all of them by `hold`."""
    topic.requests += 1
    try:
        yield
    finally:
        topic.requests -= 1


def check_unused(topic: Topic) -> None:
    """Raises TopicBusy while clients are connected."""
    consumers = sum(len(subscription.consumers) for subscription in topic.subscriptions.values())
    connected = len(topic.access.producers) + consumers
    if connected:
        raise TopicBusy(f"Topic has {connected} connected producers/consumers")


def check_domain(name: TopicName, settings: ServiceSettings) -> None:
    """Raises NotAllowed for a topic of a domain that the settings switch off."""
    if not (settings.persistent_topics if name.is_persistent else settings.non_persistent_topics):
        domain = PERSISTENT if name.is_persistent else NON_PERSISTENT
        raise NotAllowed(f"Broker is unable to load {domain} topic")
