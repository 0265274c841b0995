"""ProducerPort and ConsumerPort: the client's side of a producer and of a consumer.

`broker/net/ports.py` implements both on a connection, tests with a list. The service knows no frames: it reports events,
and the port writes them in the protocol version of its client. All methods return at once; frames are written at the
end of the loop turn. `Sends` is a run of SENDs on its way from a producer to the port of that producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from foundation.model.entry import Buffer, Entry
from foundation.model.errors import BrokerError


class Sends:
    """A run of SENDs on its way from its producer to the log and, as the context of its entries, to its receipts.

    All SENDs of a run have as many messages, and the sequence id of each follows the messages of the one before. A
    single SEND is a run of one. Outcomes come in the order of the SENDs: `settle` takes SENDs off the front, and the
    fields tell of those that are left. `Producer.publish` makes the runs of clients. There is no `__init__`: a call
    of one costs 0.1 µs.
    """

    __slots__ = (
        "bodies",
        "chunk",
        "delayed",
        "encrypted",
        "highest_sequence_id",
        "messages",
        "port",
        "producer_name",
        "sequence_id",
        "size",
    )

    port: ProducerPort
    """The port of the producer; it gets the outcome of each SEND once."""
    producer_name: str
    """The name of the producer."""
    encrypted: bool
    """The producer promises to encrypt its messages."""
    sequence_id: int
    """The client's number for the first SEND that is left."""
    highest_sequence_id: int
    """The number of the last message of that SEND if it is a batch; 0 from clients that give none."""
    messages: int
    """Messages in each SEND, at least 1: the distance between the sequence ids of two SENDs."""
    bodies: Sequence[Buffer]
    """Metadata and payload with their checksum, of each SEND that is left."""
    size: int
    """Bytes of these bodies, which are pending until their outcome."""
    chunk: bool
    """The client says that it is a part of a message; such a run has one SEND."""
    delayed: bool
    """The message may have a delivery time; such a run has one SEND."""

    def last_id(self, count: int) -> int:
        """Returns the highest sequence id of the first `count` SENDs that are left."""
        return max(self.sequence_id, self.highest_sequence_id) + (count - 1) * self.messages

    def settle(self, count: int) -> tuple[int, int, int]:
        """Takes off the first `count` SENDs, which have their outcome.

        Returns sequence id and highest sequence id of the first of them, and the bytes of all.
        """
        first, highest, size = self.sequence_id, self.highest_sequence_id, self.size
        bodies = self.bodies
        if count == len(bodies):
            self.bodies = ()
            self.size = 0
            return first, highest, size
        size = sum(map(len, bodies[:count]))
        self.bodies = bodies[count:]
        self.size -= size
        self.sequence_id += count * self.messages
        if highest:
            self.highest_sequence_id += count * self.messages
        return first, highest, size


class ReplicatedSends(Sends):
    """A run of one SEND that the replicator of another cluster passes on, with the number that its receipt bears."""

    __slots__ = ("source",)

    source: tuple[int, int] | None
    """Ledger id and entry id in the source cluster; None for a marker, which is no message of a topic."""


AddedSends: TypeAlias = tuple[Sends, int, int]
"""An add to the log: its run of SENDs, how many of them it has, and when it was asked for (`Added` of the ledger handle)."""


class ProducerPort(Protocol):
    """Receives the outcome of a producer's messages and changes of its access.

    The port settles the SENDs whose outcome it gets.
    """

    def stored(self, sends: Sends, count: int, ledger_id: int, entry_id: int) -> None:
        """The first `count` SENDs that are left of a run are stored, from this position on."""
        ...

    def not_stored(self, sends: Sends, count: int, error: BrokerError) -> None:
        """No message of the first `count` SENDs that are left of a run is stored."""
        ...

    def at_once(self, sends: Sends, count: int, error: BrokerError | None) -> None:
        """Takes the outcome of the first `count` SENDs that are left of the newest run: a refusal, or None for duplicates.

        Earlier runs may have no outcome yet. A client that goes by the order of answers must get this one after theirs.
        """
        ...

    def pause(self) -> None:
        """Stops reading the connection, because a publish rate is exceeded; each call needs one `go_on`."""
        ...

    def go_on(self) -> None:
        """Ends one `pause`."""
        ...

    def ready(self, topic_epoch: int | None) -> None:
        """A waiting producer has exclusive access now, under this epoch."""
        ...

    def failed(self, error: BrokerError) -> None:
        """A producer that waited is refused."""
        ...

    def closed_by_broker(self) -> None:
        """The topic closed the producer; the client looks the topic up and connects again."""
        ...


class SinglePort(ProducerPort):
    """A port that looks at each SEND by itself, and whose client does not go by the order of answers."""

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """The message is stored at this position; (-1, -1) marks a duplicate of a stored one.

        `size` is that of the SEND: its bytes are pending no longer.
        """
        raise NotImplementedError

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """The message, or no message of the batch, is stored. `size` bytes are pending no longer."""
        raise NotImplementedError

    def stored(self, sends: Sends, count: int, ledger_id: int, entry_id: int) -> None:
        """Calls `receipt` for each SEND."""
        for place in range(entry_id, entry_id + count):
            sequence_id, highest_sequence_id, size = sends.settle(1)
            self.receipt(sequence_id, highest_sequence_id, ledger_id, place, size)

    def not_stored(self, sends: Sends, count: int, error: BrokerError) -> None:
        """Calls `refused` for each SEND."""
        for _ in range(count):
            self.refused(*sends.settle(1), error)

    def at_once(self, sends: Sends, count: int, error: BrokerError | None) -> None:
        """Calls `receipt` or `refused` for each SEND."""
        if error is not None:
            self.not_stored(sends, count, error)
            return
        for _ in range(count):
            sequence_id, highest_sequence_id, size = sends.settle(1)
            self.receipt(sequence_id, highest_sequence_id, -1, -1, size)


class ConsumerPort(Protocol):
    """Writes entries and events to a consumer's client."""

    protocol_version: int
    """Protocol version of the connection."""
    address: str
    """`host:port` of the client, for statistics."""

    @property
    def writable(self) -> bool:
        """False while too many bytes wait for the client; nothing more may then be delivered."""
        ...

    def when_writable(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when `writable` turns True again."""
        ...

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Writes first deliveries of whole entries, in order."""
        ...

    def deliver_one(self, entry: Entry, redelivery_count: int, ack_set: Sequence[int]) -> None:
        """Writes one entry; set bits in `ack_set` are messages of its batch still unacknowledged, () = all."""
        ...

    def active_changed(self, *, active: bool) -> None:
        """The consumer became or stopped being the active one (Failover)."""
        ...

    def reached_end_of_topic(self) -> None:
        """The topic is terminated and everything is acknowledged."""
        ...

    def renew_epoch(self, epoch: int) -> None:
        """Marks later deliveries with a new consumer epoch (PIP-84)."""
        ...

    def closed_by_broker(self) -> None:
        """The subscription closed the consumer; the client looks the topic up and subscribes again."""
        ...
