"""A producer's and a consumer's port that note each call.

Law of the place: a port never answers back by itself; what a client would do, the test does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from broker.service.ports import SinglePort
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError

Key: TypeAlias = tuple[int, int]


class FakeProducerPort(SinglePort):
    def __init__(self) -> None:
        self.receipts: list[tuple[int, int, int]] = []
        """(sequence id, ledger id, entry id)"""
        self.refusals: list[tuple[int, BrokerError]] = []
        self.events: list[str] = []

    def receipt(self, sequence_id: int, highest: int, ledger_id: int, entry_id: int, size: int) -> None:
        self.receipts.append((sequence_id, ledger_id, entry_id))

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        self.refusals.append((sequence_id, error))

    def pause(self) -> None:
        self.events.append("pause")

    def go_on(self) -> None:
        self.events.append("go on")

    def ready(self, topic_epoch: int | None) -> None:
        self.events.append(f"ready {topic_epoch}")

    def failed(self, error: BrokerError) -> None:
        self.events.append(f"failed {type(error).__name__}")

    def closed_by_broker(self) -> None:
        self.events.append("closed")


class FakeConsumerPort:
    """`on_delivery` hears of every entry as it comes, before anything else happens."""

    protocol_version = 21
    address = "127.0.0.1:1"

    def __init__(self, on_delivery: Callable[[FakeConsumerPort, Entry], None] | None = None) -> None:
        self.writable = True
        self.got: list[Entry] = []
        self.counts: list[int] = []
        """The redelivery count of each in `got`."""
        self.ack_sets: list[tuple[int, ...]] = []
        self.events: list[str] = []
        self._on_delivery = on_delivery
        self._waiting: list[Callable[[], None]] = []

    @property
    def keys(self) -> list[Key]:
        return [(entry.ledger_id, entry.entry_id) for entry in self.got]

    def when_writable(self, wake: Callable[[], None]) -> None:
        if wake not in self._waiting:
            self._waiting.append(wake)

    def becomes_writable(self) -> None:
        self.writable = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def deliver(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.deliver_one(entry, 0, ())

    def deliver_one(self, entry: Entry, redelivery_count: int, ack_set: Sequence[int]) -> None:
        assert self.writable, "a slow client is sent nothing more"
        self.got.append(entry)
        self.counts.append(redelivery_count)
        self.ack_sets.append(tuple(ack_set))
        if self._on_delivery is not None:
            self._on_delivery(self, entry)

    def active_changed(self, *, active: bool) -> None:
        self.events.append("active" if active else "passive")

    def reached_end_of_topic(self) -> None:
        self.events.append("end")

    def renew_epoch(self, epoch: int) -> None:
        self.events.append(f"epoch {epoch}")

    def closed_by_broker(self) -> None:
        self.events.append("closed")
