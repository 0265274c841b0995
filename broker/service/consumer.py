"""Consumer: one receiver on a subscription, its permits, and the messages it has not acknowledged yet."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.model.entry import Entry
from broker.model.position import Position
from broker.service.ports import ConsumerPort


class SubscriptionType(enum.IntEnum):
    """Pulsar's SubType, with the wire's numbers."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def label(self) -> str:
        return ("Exclusive", "Shared", "Failover", "Key_Shared")[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySharedMeta:
    sticky: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    """Both ends included; only for sticky consumers."""
    out_of_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """What a SUBSCRIBE asks for."""

    subscription: str
    kind: SubscriptionType
    consumer_id: int
    consumer_name: str
    priority: int = 0
    durable: bool = True
    start: Position | None = None
    """Next position to read, for a reader."""
    rollback_ms: int = 0
    earliest: bool = False
    epoch: int | None = None
    key_shared: KeySharedMeta = field(default_factory=KeySharedMeta)
    read_compacted: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    client_version: str = ""
    connected_at_ms: int = 0


class Consumer:
    __slots__ = (
        "acked_messages",
        "blocked",
        "bytes_out",
        "end_told",
        "epoch",
        "hashes",
        "last_acked_ms",
        "last_consumed_flow_ms",
        "last_consumed_ms",
        "messages_out",
        "messages_per_entry",
        "messages_redelivered",
        "options",
        "pending",
        "permits",
        "port",
        "unacked",
    )

    def __init__(self, port: ConsumerPort, options: SubscribeOptions) -> None:
        self.port = port
        self.options = options
        self.permits = 0
        """Messages the client has asked for and not been sent; below zero after a batch larger than the rest."""
        self.pending: dict[tuple[int, int], int] = {}
        """Delivered and not acknowledged: position -> messages left. Only Shared and Key_Shared keep it."""
        self.hashes: dict[tuple[int, int], int] = {}
        """Key_Shared: position -> sticky hash, for the same positions."""
        self.unacked = 0
        self.blocked = False
        """Too many messages unacknowledged; nothing is sent until half of them are."""
        self.end_told = False
        """It has heard that the topic ended and everything is acknowledged."""
        self.epoch = options.epoch
        self.messages_per_entry = 1.0
        self.messages_out = 0
        self.bytes_out = 0
        self.messages_redelivered = 0
        self.acked_messages = 0
        self.last_consumed_ms = 0
        self.last_acked_ms = 0
        self.last_consumed_flow_ms = 0

    @property
    def name(self) -> str:
        return self.options.consumer_name

    @property
    def consumer_id(self) -> int:
        return self.options.consumer_id

    def may_receive(self) -> bool:
        return self.permits > 0 and not self.blocked and self.port.writable

    def deliver(self, entries: Sequence[Entry], messages: int, size: int) -> None:
        """First deliveries of whole entries, `messages` and `size` bytes in all."""
        self.count_out(messages, size, len(entries))
        self.port.deliver(entries)

    def deliver_one(self, entry: Entry, messages: int, redelivery_count: int, ack_set: Sequence[int]) -> None:
        self.count_out(messages, entry.size, 1)
        if redelivery_count:
            self.messages_redelivered += messages
        self.port.deliver_one(entry, redelivery_count, ack_set)

    def count_out(self, messages: int, size: int, entries: int) -> None:
        self.permits -= messages
        self.messages_out += messages
        self.bytes_out += size
        self.messages_per_entry += (messages / entries - self.messages_per_entry) / 8
