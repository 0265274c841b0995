"""Ports of producers and consumers: write the service's reports as frames."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, Protocol

from broker.net.connection_context import ConnectionContext
from broker.net.credentials_refresh import CredentialsRefresh, RefreshedConnection
from broker.net.outbox import Outbox
from broker.net.partition_shares import ShareRegistration
from broker.net.read_gate import ReadGate
from broker.net.topic_list_watcher import TopicListWatcher
from broker.security.principal import Principal
from broker.service.consumer import Consumer
from broker.service.ports import Sends
from broker.service.producer import Producer
from broker.service.successor import MayMove
from broker.service.topics.topic import SubscriptionLike
from broker.service.transactions.transaction_limits import OpenTransactions
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, ServiceNotReady
from foundation.model.topic_name import TopicName
from foundation.model.txn_id import TxnId
from protocol import answers
from protocol.hot_frames import MessageWriter, ReceiptWriter
from protocol.pulsar_api_pb2 import BaseCommand
from protocol.receive_buffer import ReceiveBuffer

UNSENT_BYTES_MAX = 1 << 20
"""Bytes that may gather for one connection in one turn; its consumers then wait for the write."""

VERSION_WITH_CLOSE = 5
"""Protocol version from which clients know CLOSE_PRODUCER and CLOSE_CONSUMER."""
VERSION_WITH_END_OF_TOPIC = 9
"""Protocol version from which clients know REACHED_END_OF_TOPIC."""
VERSION_WITH_CHECKSUM = 11
"""Protocol version from which clients accept a checksum in front of the metadata."""
VERSION_WITH_ACTIVE_CHANGE = 12
"""Protocol version from which clients know ACTIVE_CONSUMER_CHANGE."""
VERSION_WITH_ENTRY_METADATA = 18
"""Protocol version from which clients can ask for broker entry metadata (PIP-90)."""


class AskedTransaction(NamedTuple):
    """A transaction for which a connection has waited until its coordinator at another broker answered."""

    txn: TxnId
    """Its id."""
    error: BrokerError | None
    """The reason why there was no answer; None after one."""


class Connection(RefreshedConnection, Protocol):
    """A client's connection, as command handlers and ports use it; implemented by `ServerCnx`."""

    context: ConnectionContext
    """Shared by all connections of the broker."""
    address: str
    """`host:port` of the client."""
    common_name: str | None
    """The name in the client's certificate, which the handshake has checked; None without one."""
    host: str
    """Address of the client without its port."""
    client_version: str
    """Name and version that the client gave."""
    connected: bool
    """True once CONNECT was answered."""
    principal: Principal
    """The roles of the connection; NOBODY before CONNECT and without authentication."""
    accepts_entry_metadata: bool
    """True when messages carry broker entry metadata to this client."""
    knows_sources: bool
    """True when the client takes positions of the source in receipts of replicated messages."""
    producers: dict[int, ProducerOnConnection]
    """Producers by their id."""
    closed_producers: dict[int, None]
    """Ids of producers that the broker closed."""
    consumers: dict[int, ConsumerOnConnection]
    """Consumers by their id."""
    transactions: OpenTransactions
    """Counts the transactions that the client has begun here."""
    asked: AskedTransaction | None
    """The transaction of the command that is handled again now."""
    watchers: dict[int, TopicListWatcher]
    """Watched topic lists by watcher id."""
    shares: dict[int, ShareRegistration]
    """Consumers of Pulsar 5.0 that share partitions, by consumer id."""
    sharing: asyncio.Lock
    """Held while one of these consumers joins or leaves."""
    inbox: ReceiveBuffer
    """Cuts the received bytes into frames."""
    gate: ReadGate
    """Decides when the connection is read."""
    outbox: Outbox
    """Frames to be written."""
    refresh: CredentialsRefresh
    """Asks for new credentials when those of the client expire."""

    @property
    def unfinished_frame(self) -> int:
        """A number of the frame that is not complete, 0 for none; the same number later is the same frame."""
        ...

    def pause(self) -> None:
        """Reads and handles nothing more until `go_on`; calls add up."""
        ...

    def go_on(self) -> None:
        """Ends one `pause`."""
        ...

    def ignore_sends_of(self, producer_id: int) -> None:
        """Drops later SENDs of a producer that the broker closed."""
        ...

    async def still_there(self) -> bool:
        """Returns False when the client shows no life; its places are free then."""
        ...

    def require(self, command: BaseCommand) -> None:
        """Raises Unauthorized unless the client has the right of the command's row; for a handler that has waited."""
        ...

    def run(
        self,
        command: BaseCommand,
        work: Coroutine[object, object, None],
        refuse: Callable[[BrokerError], bytes],
        *,
        refusal_level: int = ...,
        at_end: Callable[[], None] | None = ...,
    ) -> None:
        """Asks for the right of the command, then does its work, which has to wait.

        `refuse` makes the answer to a BrokerError, logged at `refusal_level`; `at_end` is called after every outcome.
        """
        ...


class ProducerOnConnection:
    """A ProducerPort that writes frames. See `broker/service/ports.py` for the methods."""

    __slots__ = (
        "_gate",
        "_held",
        "_leaving",
        "_outbox",
        "_passed",
        "_receipts",
        "_watched",
        "cnx",
        "producer",
        "producer_id",
        "request_id",
        "unanswered",
    )

    replicates: ClassVar[bool] = False
    """True for a replicator: each of its SENDs is a run, and `replicated` reads it."""

    def __init__(self, cnx: Connection, producer_id: int, request_id: int) -> None:
        self.cnx = cnx
        """The connection that the producer came on."""
        self.producer_id = producer_id
        """The client's number for it."""
        self.request_id = request_id
        """Id of the PRODUCER request, which its answers repeat."""
        self.producer: Producer | None = None
        """None while the request is under way, and again afterwards: the two refer to each other, and the collector would
        find an old pair late."""
        self.unanswered = 0
        """SENDs without a receipt or an error yet."""
        # Looked at once per answer in the place of the two that follow, which are rarely in use.
        self._watched = False
        self._leaving: Callable[[], None] | None = None
        self._held: deque[tuple[int, bytes, int]] | None = None
        self._passed = 0
        self._gate = cnx.gate
        self._outbox = cnx.outbox
        self._receipts = ReceiptWriter(producer_id)

    def replicated(self, _: memoryview) -> Sends | None:
        """Returns the run to fill for a body, where a replicator sends; None for a plain run."""
        return None

    def stored(self, sends: Sends, count: int, ledger_id: int, entry_id: int) -> None:
        """Writes SEND_RECEIPTs. The gate accounts for them at the end of the turn, before the write."""
        sequence_id, highest, size = sends.settle(count)
        if count == 1:
            frames = self._receipts.write(sequence_id, highest, ledger_id, entry_id)
        else:
            frames = self._receipts.write_run(
                sequence_id, highest, sends.messages, count, ledger_id, entry_id
            )
        self._write(frames, count, size)
        if self._watched:
            self._answered(count)

    def not_stored(self, sends: Sends, count: int, error: BrokerError) -> None:
        """Writes SEND_ERRORs."""
        for _ in range(count):
            sequence_id, highest, size = sends.settle(1)
            self._write(self._refusal(sequence_id, highest, error), 1, size)
        if self._watched:
            self._answered(count)

    def at_once(self, sends: Sends, count: int, error: BrokerError | None) -> None:
        """Writes the answers to SENDs at the front of the newest run after those to earlier ones.

        Java's client compares an answer with its oldest unanswered message alone: one that comes early would be dropped, or
        make the client connect again.
        """
        earlier = self.unanswered - len(sends.bodies) - len(self._held or ())
        for _ in range(count):
            sequence_id, highest, size = sends.settle(1)
            if error is None:
                frame = self._duplicate(sends, sequence_id, highest)
            else:
                frame = self._refusal(sequence_id, highest, error)
            if earlier:
                if self._held is None:
                    self._held, self._passed = deque(), 0
                self._held.append((self._passed + earlier, frame, size))
                self._watched = True
            else:
                self._write(frame, 1, size)
                if self._watched:
                    self._answered(1)

    def when_answered(self, leave: Callable[[], None]) -> None:
        """Calls `leave` once every SEND is answered, because the client closes the producer."""
        self._leaving = leave
        self._watched = True

    def _refusal(self, sequence_id: int, highest_sequence_id: int, error: BrokerError) -> bytes:
        """Returns a SEND_ERROR; nothing where the topic is being closed, since CLOSE_PRODUCER says all.

        At a SEND_ERROR the C++ and the Go client close the connection, with all producers and consumers of other topics.
        """
        if isinstance(error, ServiceNotReady) and (self.producer is None or self.producer.topic.closed):
            return b""
        # Of a batch the highest id, as in Pulsar: Java's client finds the batch by no other. Others leave it 0.
        highest = max(sequence_id, highest_sequence_id)
        return answers.send_error(self.producer_id, highest, error.code, str(error))

    def _duplicate(self, _: Sends, sequence_id: int, highest_sequence_id: int) -> bytes:
        return self._receipts.write(sequence_id, highest_sequence_id, -1, -1)

    def _write(self, frames: bytes, count: int, size: int) -> None:
        # Subtracted here and not in a method of the gate: a call per answer would cost more than the subtraction.
        gate = self._gate
        gate.pending_publishes -= count
        gate.pending_bytes -= size
        self._outbox.send(frames)
        self.unanswered -= count

    def _answered(self, count: int) -> None:
        """Writes the held answers whose turn has come after `count` more, and lets a closing producer leave."""
        held = self._held
        self._passed += count
        while held and held[0][0] <= self._passed:
            _, frame, size = held.popleft()
            self._write(frame, 1, size)
        self._held = held or None
        if self._leaving is not None and not self.unanswered:
            self._leaving()
        self._watched = bool(held) or self._leaving is not None

    def pause(self) -> None:
        """Pauses the whole connection, as Pulsar does."""
        self.cnx.pause()

    def go_on(self) -> None:
        """Ends one `pause` of the connection."""
        self.cnx.go_on()

    def ready(self, topic_epoch: int | None) -> None:
        """Writes a second PRODUCER_SUCCESS, under the first one's request id."""
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
        """Frees the producer id, unless it is reused already."""
        if self.cnx.producers.get(self.producer_id) is self:
            del self.cnx.producers[self.producer_id]

    def failed(self, error: BrokerError) -> None:
        """Writes ERROR under the request id."""
        self.forget()
        self.cnx.send(answers.error(self.request_id, error.code, str(error)))

    def closed_by_broker(self) -> None:
        """Writes CLOSE_PRODUCER; a client too old for it loses its connection."""
        if self.cnx.producers.get(self.producer_id) is not self:
            return
        self.forget()
        # SENDs that are on their way must be dropped; as SENDs of an unknown producer they would end the connection.
        self.cnx.ignore_sends_of(self.producer_id)
        if self.cnx.protocol_version < VERSION_WITH_CLOSE:
            self.cnx.close("the topic moved and the client is too old to be told")
        else:
            topic = None if self.producer is None else self.producer.topic
            _tell_of_close(self.cnx, topic, partial(answers.close_producer, self.producer_id))
        self.producer = None


class ConsumerOnConnection:
    """A ConsumerPort that writes frames. See `broker/service/ports.py` for the methods."""

    __slots__ = (
        "_outbox",
        "_writer",
        "address",
        "cnx",
        "consumer",
        "consumer_id",
        "protocol_version",
        "subscription",
        "topic",
    )

    def __init__(self, cnx: Connection, consumer_id: int, partition: int, epoch: int | None) -> None:
        """`partition`: index that message ids carry, -1 = none. `epoch`: None where messages carry none."""
        self.cnx = cnx
        """The connection that the consumer came on."""
        self.consumer_id = consumer_id
        """The client's number for it."""
        self.consumer: Consumer | None = None
        """None while the request is under way, and again afterwards, as a producer's."""
        self.subscription: SubscriptionLike | None = None
        """None while the request is under way."""
        self.topic: TopicName | None = None
        """Name of the topic; None while the request is under way."""
        self.protocol_version = cnx.protocol_version
        """Protocol version of the connection."""
        self.address = cnx.address
        """`host:port` of the client."""
        self._outbox = cnx.outbox
        self._writer = MessageWriter(
            consumer_id,
            partition=partition,
            epoch=epoch,
            expose_entry_metadata=cnx.accepts_entry_metadata,
            strip_checksum=cnx.protocol_version < VERSION_WITH_CHECKSUM,
            shared=cnx.context.shared_run,
        )

    @property
    def writable(self) -> bool:
        """Also False when this turn has gathered enough for the connection."""
        outbox = self._outbox
        return outbox.writable and outbox.unsent_bytes < UNSENT_BYTES_MAX

    def when_writable(self, wake: Callable[[], None]) -> None:
        """Leaves the call to the outbox."""
        self._outbox.when_writable(wake)

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Writes one MESSAGE per entry."""
        # Straight into the outbox's list: a list of their own would be one more copy per consumer and turn.
        outbox = self._outbox
        outbox.unsent_bytes += self._writer.write(entries, outbox.frames)
        outbox.touch()

    def deliver_one(self, entry: Entry, redelivery_count: int, ack_set: Sequence[int]) -> None:
        """Writes one MESSAGE with a redelivery count and an ack set."""
        outbox = self._outbox
        outbox.unsent_bytes += self._writer.write_one(entry, redelivery_count, ack_set, outbox.frames)
        outbox.touch()

    def active_changed(self, *, active: bool) -> None:
        """Writes ACTIVE_CONSUMER_CHANGE, where the client knows it."""
        if self.protocol_version >= VERSION_WITH_ACTIVE_CHANGE:
            self.cnx.send(answers.active_consumer_change(self.consumer_id, active=active))

    def reached_end_of_topic(self) -> None:
        """Writes REACHED_END_OF_TOPIC, where the client knows it."""
        if self.protocol_version >= VERSION_WITH_END_OF_TOPIC:
            self.cnx.send(answers.reached_end_of_topic(self.consumer_id))

    def renew_epoch(self, epoch: int) -> None:
        """Gives every later MESSAGE the new epoch."""
        self._writer.renew_epoch(epoch)

    def leave(self) -> None:
        """Removes the consumer from its subscription, if it has joined: it was closed, or the connection is lost."""
        if self.subscription is not None and self.consumer is not None:
            self.subscription.remove_consumer(self.consumer)
            self.consumer = self.subscription = None

    def forget(self) -> None:
        """Frees the consumer id, unless it is reused already."""
        if self.cnx.consumers.get(self.consumer_id) is self:
            del self.cnx.consumers[self.consumer_id]

    def closed_by_broker(self) -> None:
        """Writes CLOSE_CONSUMER; a client too old for it loses its connection."""
        if self.cnx.consumers.get(self.consumer_id) is not self:
            return
        self.forget()
        if self.protocol_version < VERSION_WITH_CLOSE:
            self.cnx.close("the subscription moved and the client is too old to be told")
        else:
            topic = None if self.subscription is None else self.subscription.topic
            _tell_of_close(self.cnx, topic, partial(answers.close_consumer, self.consumer_id))
        self.consumer = self.subscription = None


def _tell_of_close(cnx: Connection, topic: MayMove | None, frame: Callable[[str, str], bytes]) -> None:
    """Sends the frame at once, or with the addresses of a moved topic's next owner once that is known."""
    successor = None if topic is None else topic.successor
    if successor is None:
        cnx.send(frame("", ""))
    else:
        successor.when_known(lambda urls: cnx.send(frame(*urls)))
