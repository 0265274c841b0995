"""Consumer: one receiver on a subscription, with its permits and its unacknowledged messages."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.managed_ledger.managed_ledger_info import NO_PROPERTIES
from broker.service.ports import ConsumerPort
from foundation.model.entry import Entry
from foundation.model.position import Position


class SubscriptionType(enum.IntEnum):
    """Pulsar's SubType, with the numbers of the wire."""

    EXCLUSIVE = 0
    """One consumer."""
    SHARED = 1
    """Entries are dealt to consumers in turns."""
    FAILOVER = 2
    """One consumer receives, the others stand by."""
    KEY_SHARED = 3
    """All messages of a key go to one consumer."""

    @property
    def label(self) -> str:
        """Pulsar's spelling, for errors and statistics: `Key_Shared`."""
        return ("Exclusive", "Shared", "Failover", "Key_Shared")[self]


class KeySharedMeta(NamedTuple):
    """Key_Shared mode that a consumer asks for."""

    sticky: bool = False
    """True for declared hash ranges; False lets the broker divide the hashes."""
    ranges: tuple[tuple[int, int], ...] = ()
    """(first, last) hashes, both included; only of sticky consumers."""
    out_of_order: bool = False
    """True allows delivery of a key out of order."""


ALL_KEYS: Final = KeySharedMeta()
"""Of a consumer that asks for no mode."""


NO_HASHES: Final[dict[tuple[int, int], int]] = {}
"""The key hashes of every consumer that needs none. Nothing is ever put in."""
NONE_PENDING: Final[dict[tuple[int, int], int]] = {}
"""The pending entries of every consumer that was sent none. Nothing is ever put in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """Contents of one SUBSCRIBE, without wire types."""

    subscription: str
    """Name of the subscription."""
    kind: SubscriptionType
    """Type that the consumer wants; must equal that of connected consumers."""
    consumer_id: int
    """Number that the client gave; unique on its connection."""
    consumer_name: str
    """Name that the client gave, else a random one."""
    priority: int = 0
    """Lower numbers receive first (Shared) or are active first (Failover)."""
    durable: bool = True
    """False for a reader: its cursor ends with it."""
    start: Position | None = None
    """Next position to read, for a reader; None = by `earliest`."""
    rollback_ms: int = 0
    """Above 0: the consumer starts with entries of the last so many milliseconds instead."""
    earliest: bool = False
    """A new subscription starts at the first entry instead of after the last one."""
    epoch: int | None = None
    """Consumer epoch (PIP-84), None for clients without one."""
    key_shared: KeySharedMeta = ALL_KEYS
    """Key hashes of a KEY_SHARED consumer, or of an EXCLUSIVE one that wants some keys only."""
    takes_any_schema: bool = False
    """True for the schema type AUTO_CONSUME."""
    read_compacted: bool = False
    """True to read the compacted ledger before the horizon; only for Exclusive and Failover."""
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    """Properties of the subscription, kept when it has none yet."""
    replicated: bool = False
    """The subscription's position is to be replicated to other clusters; kept and shown, there is no other cluster."""
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    """Properties of the consumer, shown in statistics."""
    client_version: str = ""
    """Shown in statistics."""
    connected_at_ms: int = 0
    """Wall clock, shown in statistics."""


class Consumer:
    """A connected receiver: its permits, its pending messages, and its counters."""

    __slots__ = (
        "acked_messages",
        "blocked",
        "bytes_out",
        "end_told",
        "epoch",
        "hashes",
        "last_consumed_flow_ms",
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
        """The consumer's side of its connection."""
        self.options = options
        """Contents of its SUBSCRIBE."""
        self.permits = 0
        """Messages that the client asked for and did not get yet; negative after a batch larger than the rest."""
        self.pending = NONE_PENDING
        """Delivered and unacknowledged: position -> messages left; only Shared and Key_Shared make a dict and fill it."""
        self.hashes = NO_HASHES
        """Position -> key hash, for the positions in `pending`; only Key_Shared makes a dict of its own and fills it."""
        self.unacked = 0
        """Sum of the messages in `pending`."""
        self.blocked = False
        """True from `maxUnackedMessagesPerConsumer` until half of them are acknowledged; it gets nothing meanwhile."""
        self.end_told = False
        """True once the client was told that the topic ended, and while it must not be told yet."""
        self.epoch = options.epoch
        """Grows with each redelivery request that names a higher one (PIP-84)."""
        self.messages_per_entry = 0.0
        """Moving average over deliveries, 0 before the first one; turns permits into a number of entries to read."""
        self.messages_out = 0
        """Messages delivered, redeliveries included."""
        self.bytes_out = 0
        """Bytes of those messages."""
        self.messages_redelivered = 0
        """Messages delivered with a redelivery count above 0."""
        self.acked_messages = 0
        """Acknowledgements that the client sent, one per entry or batch index set."""
        self.last_consumed_flow_ms = 0
        """Wall clock of the last FLOW, 0 = none came."""

    @property
    def name(self) -> str:
        """The client's name for it, or the broker's random one."""
        return self.options.consumer_name

    @property
    def consumer_id(self) -> int:
        """Number of the consumer on its connection."""
        return self.options.consumer_id

    def may_receive(self) -> bool:
        """Returns True when the consumer can take a message now."""
        return self.permits > 0 and not self.blocked and self.port.writable

    def deliver(self, entries: Sequence[Entry], messages: int, size: int) -> None:
        """Writes first deliveries of whole entries, `messages` and `size` bytes in total."""
        self._count_out(messages, size, len(entries))
        self.port.deliver(entries)

    def deliver_one(self, entry: Entry, messages: int, redelivery_count: int, ack_set: Sequence[int]) -> None:
        """Writes one entry with its redelivery count and its ack set."""
        self._count_out(messages, entry.size, 1)
        if redelivery_count:
            self.messages_redelivered += messages
        self.port.deliver_one(entry, redelivery_count, ack_set)

    def _count_out(self, messages: int, size: int, entries: int) -> None:
        # Below zero after a batch larger than the rest; the next entry waits for permits above zero, as in Pulsar.
        self.permits -= messages
        self.messages_out += messages
        self.bytes_out += size
        # An eighth of the difference: one odd batch changes the estimate little, a new batch size within 20 deliveries.
        average = self.messages_per_entry
        self.messages_per_entry = (average * 7 + messages / entries) / 8 if average else messages / entries
