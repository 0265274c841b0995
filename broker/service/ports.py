"""The client's side of a producer and of a consumer, as the service sees it.

`net` implements both on a connection; a test needs ten lines for each. The service never sees a frame: it says
what happened, and the port finds the words. All calls return at once; what they say is written at the end of the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.model.entry import Entry
from broker.model.errors import BrokerError


class ProducerPort(Protocol):
    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """The message is stored there; ledger and entry -1 = it was stored before. `size` bytes are no longer pending."""
        ...

    def refused(self, sequence_id: int, size: int, error: BrokerError) -> None: ...

    def ready(self, topic_epoch: int | None) -> None:
        """A producer that waited for exclusive access has it now."""
        ...

    def failed(self, error: BrokerError) -> None:
        """A producer that waited will not get access."""
        ...

    def closed_by_broker(self) -> None:
        """The client must look the topic up again."""
        ...


class ConsumerPort(Protocol):
    protocol_version: int
    address: str

    @property
    def writable(self) -> bool:
        """False while the client does not take what was sent: dispatch nothing more."""
        ...

    def when_writable(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when `writable` turns true again."""
        ...

    def deliver(self, entries: Sequence[Entry]) -> None:
        """First deliveries."""
        ...

    def deliver_one(self, entry: Entry, redelivery_count: int, ack_set: Sequence[int]) -> None: ...

    def active_changed(self, *, active: bool) -> None: ...

    def reached_end_of_topic(self) -> None: ...

    def renew_epoch(self, epoch: int) -> None: ...

    def closed_by_broker(self) -> None: ...
