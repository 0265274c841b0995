"""Producer: one publisher on a topic, what it may do, and what it has sent."""

from __future__ import annotations

import enum
from typing import Protocol

from broker.model.entry import Buffer
from broker.model.errors import BrokerError
from broker.model.topic_name import TopicName
from broker.service.ports import ProducerPort


class PublishTarget(Protocol):
    """The topic, as its producers know it."""

    name: TopicName

    def last_sequence_id(self, producer_name: str) -> int: ...

    def publish(
        self,
        producer: Producer,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        body: Buffer,
        chunk: bool,
    ) -> None: ...

    async def remove_producer(self, producer: Producer) -> None: ...


class AccessMode(enum.IntEnum):
    """Pulsar's ProducerAccessMode, with the wire's numbers."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class Producer:
    __slots__ = (
        "access_mode",
        "address",
        "bytes_in",
        "client_version",
        "connected_at_ms",
        "connection",
        "encrypted",
        "entries_in",
        "fenced",
        "messages_in",
        "metadata",
        "name",
        "port",
        "producer_id",
        "topic",
        "topic_epoch",
        "waiting",
    )

    def __init__(
        self,
        topic: PublishTarget,
        port: ProducerPort,
        *,
        producer_id: int,
        name: str,
        access_mode: AccessMode = AccessMode.SHARED,
        topic_epoch: int | None = None,
        encrypted: bool = False,
        connection: object = None,
        address: str = "",
        client_version: str = "",
        metadata: dict[str, str] | None = None,
        connected_at_ms: int = 0,
    ) -> None:
        self.topic = topic
        self.port = port
        self.producer_id = producer_id
        self.name = name
        self.access_mode = access_mode
        self.topic_epoch = topic_epoch
        """What the client knows of the topic's epoch when it asks; what it got once it has access."""
        self.encrypted = encrypted
        self.connection = connection
        """Whose producer it is: only compared."""
        self.address = address
        self.client_version = client_version
        self.metadata = metadata or {}
        self.connected_at_ms = connected_at_ms
        self.waiting = False
        self.fenced = False
        """Another producer took the topic over: the next SEND ends the connection."""
        self.entries_in = 0
        self.messages_in = 0
        self.bytes_in = 0

    def publish(
        self, sequence_id: int, highest_sequence_id: int, messages: int, body: Buffer, *, chunk: bool
    ) -> None:
        """Hand one message or batch to the topic. The port hears the outcome, in the order of the calls."""
        self.entries_in += 1
        self.messages_in += messages
        self.bytes_in += len(body)
        try:
            self.topic.publish(self, sequence_id, highest_sequence_id, messages, body, chunk)
        except BrokerError as error:
            self.port.refused(sequence_id, len(body), error)
