"""What persistent and non-persistent topics share: producers with their access modes, limits, counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.model.entry import Buffer
from broker.model.errors import (
    BrokerError,
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    ServiceNotReady,
    TopicTerminated,
)
from broker.model.topic_name import TopicName
from broker.service.consumer import Consumer, SubscribeOptions
from broker.service.ports import ConsumerPort
from broker.service.producer import Producer
from broker.service.producer_access import ProducerAccess
from broker.service.settings import ServiceSettings

if TYPE_CHECKING:
    from broker.service.namespaces import Namespaces


class SubscriptionLike(Protocol):
    """What a connection needs of a subscription, persistent or not."""

    name: str

    @property
    def consumers(self) -> list[Consumer]: ...

    def remove_consumer(self, consumer: Consumer) -> None: ...

    def flow(self, consumer: Consumer, permits: int) -> None: ...


class EncryptionRequired(NotAllowed):
    """Pulsar answers this one as MetadataError."""

    code = 1


class Topic:
    """Base: whoever has a connection has a producer or a consumer on one of these."""

    __slots__ = (
        "access",
        "bytes_in",
        "closed",
        "entries_in",
        "messages_in",
        "name",
        "namespaces",
        "settings",
    )

    def __init__(self, name: TopicName, settings: ServiceSettings, namespaces: Namespaces) -> None:
        self.name = name
        self.settings = settings
        self.namespaces = namespaces
        self.access = ProducerAccess()
        self.closed = False
        self.messages_in = 0
        self.bytes_in = 0
        self.entries_in = 0

    def reconfigure(self, settings: ServiceSettings) -> None:
        """What was changed at run time holds from now on, for clients that are connected too."""
        self.settings = settings

    def limit(self, policy: str, setting: str) -> int:
        """A limit that the namespace's policy overrides; 0 = none."""
        value = self.namespaces.policy(self.name.namespace, policy)
        return value if isinstance(value, int) else int(getattr(self.settings, setting))

    @property
    def is_terminated(self) -> bool:
        return False

    @property
    def encryption_required(self) -> bool:
        return self.namespaces.policy(self.name.namespace, "encryption_required") is True

    # Producers

    def last_sequence_id(self, producer_name: str) -> int:
        """-1 unless the topic deduplicates and knows the producer."""
        return -1

    async def add_producer(self, producer: Producer) -> None:
        """Let in, make wait (`producer.waiting`), or refuse: ProducerBusy, ProducerFenced, TopicTerminated."""
        if self.closed:
            raise ServiceNotReady(f"Topic {self.name} is being closed; look it up again")
        if self.is_terminated:
            raise TopicTerminated("Topic was already terminated")
        if self.encryption_required and not producer.encrypted:
            raise EncryptionRequired(f"Encryption is required in {self.name}")
        limit = self.limit("max_producers_per_topic", "producers_max")
        if limit and len(self.access.producers) >= limit:
            raise ProducerBusy(f"Topic '{self.name}' reached max producers limit")
        epoch = self.access.epoch
        for other in self.access.enter(producer):
            if other.waiting:
                other.port.failed(ProducerFenced("Fenced out"))
        if self.access.epoch != epoch:
            try:
                await self.keep_epoch()
            except BrokerError:
                await self.remove_producer(producer)
                raise

    async def keep_epoch(self) -> None:
        """Make the access epoch durable before anybody relies on it."""

    async def remove_producer(self, producer: Producer) -> None:
        """Who has waited longest follows an exclusive one; whose epoch cannot be kept is refused."""
        heir = self.access.leave(producer)
        while heir is not None:
            try:
                await self.keep_epoch()
            except BrokerError as error:
                heir.port.failed(error)
                heir = self.access.leave(heir)
                continue
            if self.access.exclusive is heir:
                heir.port.ready(heir.topic_epoch)
            return

    def publish(
        self,
        producer: Producer,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        body: Buffer,
        chunk: bool,
    ) -> None:
        """Store or pass on; the producer's port hears the outcome. Raises BrokerError when nothing was taken."""
        raise NotImplementedError

    # Subscriptions

    async def subscribe(
        self, port: ConsumerPort, options: SubscribeOptions
    ) -> tuple[SubscriptionLike, Consumer]:
        raise NotImplementedError

    def consumers_of(self, subscription: str) -> list[Consumer]:
        """Those connected to the subscription; none when there is no such subscription."""
        raise NotImplementedError

    def disconnect_producers(self) -> None:
        for producer in [*self.access.producers.values(), *self.access.waiting]:
            producer.port.closed_by_broker()
        self.access.producers.clear()
        self.access.waiting.clear()
        self.access.exclusive = None

    async def close(self) -> None:
        raise NotImplementedError
