"""Producer: one publisher on a topic, with its access mode and its counters."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.managed_ledger.managed_ledger_info import NO_PROPERTIES
from broker.service.ports import ProducerPort, Sends
from broker.service.successor import MayMove
from foundation.model.entry import Buffer
from foundation.model.errors import BrokerError
from foundation.model.topic_name import TopicName
from foundation.model.txn_id import TxnId
from protocol.message_metadata import read_facts


class TransactionGate(Protocol):
    """Decides about messages of transactions on one topic."""

    def admit(self, txn: TxnId) -> None:
        """Raises NotAllowed unless the transaction is open and has named the topic."""
        ...


class PublishTarget(MayMove, Protocol):
    """The topic, as far as its producers use it."""

    name: TopicName
    """Full name."""

    @property
    def closed(self) -> bool:
        """True from the moment closing or deleting begins: producers are told by CLOSE_PRODUCER."""
        ...

    @property
    def transactions(self) -> TransactionGate:
        """Admits messages of transactions."""
        ...

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns the highest stored sequence id, -1 = unknown."""
        ...

    @property
    def single_sends(self) -> bool:
        """True where a rule looks at each message: every run must then have one SEND."""
        ...

    def publish(self, sends: Sends) -> None:
        """Stores or forwards a run of SENDs; raises BrokerError when those that are left are refused at once."""
        ...

    async def remove_producer(self, producer: Producer) -> None:
        """Removes the producer from its topic."""
        ...


class AccessMode(enum.IntEnum):
    """Pulsar's ProducerAccessMode, with the numbers of the wire (PIP-68)."""

    SHARED = 0
    """Publishes beside others."""
    EXCLUSIVE = 1
    """Publishes alone; refused while there are others."""
    WAIT_FOR_EXCLUSIVE = 2
    """Publishes alone; waits while there are others."""
    EXCLUSIVE_WITH_FENCING = 3
    """Publishes alone; removes all others."""


class Producer:
    """A connected publisher; `publish` passes its messages to the topic."""

    __slots__ = (
        "access_mode",
        "address",
        "bytes_in",
        "client_version",
        "connected_at_ms",
        "connection",
        "encrypted",
        "ended",
        "entries_in",
        "messages_in",
        "metadata",
        "name",
        "port",
        "producer_id",
        "schema_version",
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
        metadata: Mapping[str, str] = NO_PROPERTIES,
        schema_version: bytes = b"",
        connected_at_ms: int = 0,
    ) -> None:
        self.topic = topic
        """The topic that it publishes to."""
        self.port = port
        """The producer's side of its connection."""
        self.producer_id = producer_id
        """Number that the client gave; unique on its connection."""
        self.name = name
        """Unique on the topic."""
        self.access_mode = access_mode
        """Access that the client asked for."""
        self.topic_epoch = topic_epoch
        """Epoch that the client had before, None = none; with access, the epoch that it got."""
        self.encrypted = encrypted
        """True when the client promises to encrypt its messages."""
        self.connection = connection
        """The connection it came on, for comparison alone."""
        self.address = address
        """`host:port` of the client, for statistics."""
        self.client_version = client_version
        """For statistics."""
        self.metadata = metadata
        """Properties that the client gave, for statistics."""
        self.schema_version = schema_version
        """Eight bytes, b"" = none; the client puts them into its messages."""
        self.connected_at_ms = connected_at_ms
        """Wall clock, for statistics."""
        self.waiting = False
        """True while it waits for exclusive access."""
        self.ended = False
        """True once another producer took exclusive access, or the broker is about to close it: no later SEND counts."""
        self.entries_in = 0
        """SENDs."""
        self.messages_in = 0
        """Messages in those SENDs."""
        self.bytes_in = 0
        """Bytes of those SENDs."""

    def publish(
        self,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        bodies: Sequence[Buffer],
        size: int,
        chunk: bool,
        delayed: bool,
        sends: Sends | None = None,
    ) -> None:
        """Passes a run of messages or batches to the topic; the port gets one outcome for each.

        `sequence_id` and `highest_sequence_id`: those of the first one. `messages`: in each of them. `size`: bytes of all
        bodies. `delayed`: the message may have a delivery time. Outcomes of stored messages come in the order of the
        calls; that of a duplicate or a refusal comes before this returns (`ProducerPort.at_once`). See `Sends`.
        `sends`: an object to fill, of a replicator.
        """
        if sends is None:
            sends = Sends()
        sends.port = self.port
        sends.producer_name = self.name
        sends.encrypted = self.encrypted
        sends.sequence_id = sequence_id
        sends.highest_sequence_id = highest_sequence_id
        sends.messages = messages
        sends.bodies = bodies
        sends.size = size
        sends.chunk = chunk
        sends.delayed = delayed
        count = len(bodies)
        self.entries_in += count
        self.messages_in += messages * count
        self.bytes_in += size
        try:
            self.topic.publish(sends)
        except BrokerError as error:
            self.port.at_once(sends, len(sends.bodies), error)

    def publish_in_transaction(
        self,
        txn: TxnId,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        body: Buffer,
        size: int,
        chunk: bool,
    ) -> None:
        """Publishes as `publish`, for a message that counts once its transaction is committed, which its metadata
        names.
        """
        try:
            self.topic.transactions.admit(txn)
        except BrokerError as error:
            self.refuse(sequence_id, highest_sequence_id, body, error)
            return
        delayed = read_facts(body).deliver_at_ms != 0
        self.publish(sequence_id, highest_sequence_id, messages, [body], size, chunk, delayed)

    def refuse(self, sequence_id: int, highest_sequence_id: int, body: Buffer, error: BrokerError) -> None:
        """Passes the refusal of a SEND, which the topic does not get, to the port."""
        sends = Sends()
        sends.sequence_id = sequence_id
        sends.highest_sequence_id = highest_sequence_id
        sends.messages = 1
        sends.bodies = (body,)
        sends.size = len(body)
        self.port.at_once(sends, 1, error)
