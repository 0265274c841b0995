"""ProducerPort and ConsumerPort: the client's side of a producer and of a consumer.

`broker/net/ports.py` implements both on a connection, tests with a list. The service knows no frames: it reports events,
and the port writes them in the protocol version of its client. All methods return at once; frames are written at the
end of the loop turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from foundation.model.entry import Entry
from foundation.model.errors import BrokerError


class ProducerPort(Protocol):
    """Receives the outcome of a producer's messages and changes of its access."""

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """The message is stored at this position; (-1, -1) marks a duplicate of a stored one.

        `size` is that of the SEND: its bytes are pending no longer.
        """
        ...

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """The message, or no message of the batch, is stored. `size` bytes are pending no longer."""
        ...

    def at_once(
        self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError | None
    ) -> None:
        """Takes the outcome of the newest SEND while earlier ones may have none yet: a refusal, or None for a duplicate.

        A client that goes by the order of answers must get it after theirs; this default is for all others.
        """
        if error is None:
            self.receipt(sequence_id, highest_sequence_id, -1, -1, size)
        else:
            self.refused(sequence_id, highest_sequence_id, size, error)

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


class ConsumerPort(Protocol):
    """Writes entries and events to a consumer's client."""

    protocol_version: int
    """Protocol version of the connection."""
    address: str
    """`host:port` of the client, for statistics."""

    @property
    def writable(self) -> bool:
        """False while too many bytes wait for the client; deliver nothing more then."""
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
