"""A producer's and a consumer's port on a connection: what the service says, in frames."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from broker.model.entry import Entry
from broker.model.errors import BrokerError
from broker.net.net_ground import NetGround
from broker.net.topic_list_watcher import TopicListWatcher
from broker.service.consumer import Consumer
from broker.service.producer import Producer
from broker.service.topic import SubscriptionLike
from protocol import answers
from protocol.hot_frames import MessageWriter, ReceiptWriter

CLIENTS_WITHOUT_END_OF_TOPIC = ("Pulsar-CPP-v", "Pulsar-Go-", "pulsar-client-python")
"""Their clients close the connection on REACHED_END_OF_TOPIC, and then come back for it without end."""

UNSENT_BYTES_MAX = 1 << 20
"""So much may gather for one connection in one turn before its consumers wait for the write."""

VERSION_WITH_CLOSE = 5
VERSION_WITH_END_OF_TOPIC = 9
VERSION_WITH_CHECKSUM = 11
VERSION_WITH_ACTIVE_CHANGE = 12
VERSION_WITH_ENTRY_METADATA = 18


class Connection(Protocol):
    """A client's connection, as the commands and the ports on it know it; `ServerCnx` is the one there is."""

    ground: NetGround
    address: str
    client_version: str
    protocol_version: int
    connected: bool
    accepts_entry_metadata: bool
    producers: dict[int, ProducerOnConnection]
    closed_producers: dict[int, None]
    consumers: dict[int, ConsumerOnConnection]
    watchers: dict[int, TopicListWatcher]
    out: list[bytes | memoryview]
    """Frames that are written at the end of the turn."""
    unsent_bytes: int
    """Of those frames."""
    writable: bool

    @property
    def is_open(self) -> bool: ...

    def send(self, frame: bytes) -> None: ...

    def touch(self) -> None:
        """There is something in `out`."""
        ...

    def close(self, reason: str) -> None: ...

    def when_writable(self, wake: Callable[[], None]) -> None: ...

    def publish_done(self, size: int) -> None: ...

    def ignore_sends_of(self, producer_id: int) -> None: ...

    async def still_there(self) -> bool: ...

    def run(
        self, work: Coroutine[object, object, None], refuse: Callable[[BrokerError], bytes], name: str
    ) -> None:
        """Run a request that has to wait; a BrokerError is answered by what `refuse` makes of it."""
        ...


class ProducerOnConnection:
    __slots__ = ("_receipts", "cnx", "leaving", "producer", "producer_id", "request_id", "unanswered")

    def __init__(self, cnx: Connection, producer_id: int, request_id: int) -> None:
        self.cnx = cnx
        self.producer_id = producer_id
        self.request_id = request_id
        self.producer: Producer | None = None
        """None while the request is under way."""
        self.unanswered = 0
        """SENDs without a receipt or an error yet."""
        self.leaving: Callable[[], None] | None = None
        """The client closes the producer: called when every SEND is answered."""
        self._receipts = ReceiptWriter(producer_id)

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        cnx = self.cnx
        cnx.publish_done(size)
        cnx.send(self._receipts.write(sequence_id, highest_sequence_id, ledger_id, entry_id))
        self.unanswered -= 1
        if self.leaving is not None and not self.unanswered:
            self.leaving()

    def refused(self, sequence_id: int, size: int, error: BrokerError) -> None:
        self.cnx.publish_done(size)
        self.cnx.send(answers.send_error(self.producer_id, sequence_id, error.code, str(error)))
        self.unanswered -= 1
        if self.leaving is not None and not self.unanswered:
            self.leaving()

    def ready(self, topic_epoch: int | None) -> None:
        assert self.producer is not None
        self.cnx.send(
            answers.producer_success(
                self.request_id,
                self.producer.name,
                self.producer.topic.last_sequence_id(self.producer.name),
                topic_epoch=topic_epoch,
                ready=True,
            )
        )

    def forget(self) -> None:
        """The id is free again, unless the client has used it for another producer already."""
        if self.cnx.producers.get(self.producer_id) is self:
            del self.cnx.producers[self.producer_id]

    def failed(self, error: BrokerError) -> None:
        self.forget()
        self.cnx.send(answers.error(self.request_id, error.code, str(error)))

    def closed_by_broker(self) -> None:
        if self.cnx.producers.get(self.producer_id) is not self:
            return
        self.forget()
        self.cnx.ignore_sends_of(self.producer_id)
        if self.cnx.protocol_version < VERSION_WITH_CLOSE:
            self.cnx.close("the topic moved and the client is too old to be told")
        else:
            self.cnx.send(answers.close_producer(self.producer_id))


class ConsumerOnConnection:
    __slots__ = ("_writer", "address", "cnx", "consumer", "consumer_id", "protocol_version", "subscription")

    def __init__(self, cnx: Connection, consumer_id: int, partition: int, epoch: int | None) -> None:
        self.cnx = cnx
        self.consumer_id = consumer_id
        self.consumer: Consumer | None = None
        """None while the request is under way."""
        self.subscription: SubscriptionLike | None = None
        self.protocol_version = cnx.protocol_version
        self.address = cnx.address
        self._writer = MessageWriter(
            consumer_id,
            partition=partition,
            epoch=epoch,
            expose_entry_metadata=cnx.accepts_entry_metadata,
            strip_checksum=cnx.protocol_version < VERSION_WITH_CHECKSUM,
        )

    @property
    def writable(self) -> bool:
        return self.cnx.writable and self.cnx.unsent_bytes < UNSENT_BYTES_MAX

    def when_writable(self, wake: Callable[[], None]) -> None:
        self.cnx.when_writable(wake)

    def deliver(self, entries: Sequence[Entry]) -> None:
        cnx = self.cnx
        cnx.unsent_bytes += self._writer.write(entries, cnx.out)
        cnx.touch()

    def deliver_one(self, entry: Entry, redelivery_count: int, ack_set: Sequence[int]) -> None:
        cnx = self.cnx
        cnx.unsent_bytes += self._writer.write_one(entry, redelivery_count, ack_set, cnx.out)
        cnx.touch()

    def active_changed(self, *, active: bool) -> None:
        if self.protocol_version >= VERSION_WITH_ACTIVE_CHANGE:
            self.cnx.send(answers.active_consumer_change(self.consumer_id, active=active))

    def reached_end_of_topic(self) -> None:
        if self.protocol_version >= VERSION_WITH_END_OF_TOPIC and not self.cnx.client_version.startswith(
            CLIENTS_WITHOUT_END_OF_TOPIC
        ):
            self.cnx.send(answers.reached_end_of_topic(self.consumer_id))

    def renew_epoch(self, epoch: int) -> None:
        self._writer.renew_epoch(epoch)

    def forget(self) -> None:
        """The id is free again, unless the client has used it for another consumer already."""
        if self.cnx.consumers.get(self.consumer_id) is self:
            del self.cnx.consumers[self.consumer_id]

    def closed_by_broker(self) -> None:
        if self.cnx.consumers.get(self.consumer_id) is not self:
            return
        self.forget()
        if self.protocol_version < VERSION_WITH_CLOSE:
            self.cnx.close("the subscription moved and the client is too old to be told")
        else:
            self.cnx.send(answers.close_consumer(self.consumer_id))
