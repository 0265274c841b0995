"""Entry: the bytes of one SEND, its position, and the cache's facts about it.

One object per entry serves the ledger handle, the entry cache and every dispatcher, so nothing is copied or parsed
again on the way. The fields from `cached` on belong to `entry_cache`, and nothing else writes them; of these,
the policy's `ReadCounts` decides every value of `expected_reads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from foundation.model.position import Position

if TYPE_CHECKING:
    from protocol.message_metadata import MessageFacts

Buffer: TypeAlias = bytes | memoryview
"""Bytes of their own, or a slice of a receive buffer."""


class Holder(Protocol):
    """The part of the entry cache that an entry stands in: the `RangeCache` of its ledger."""

    entries: dict[int, Entry]
    """The cached entries of the ledger, by entry id."""
    size_bytes: int
    """Their bytes."""


class Entry:
    """A ledger's entry: one message or one batch, as the client sent it."""

    __slots__ = (
        "accessed",
        "body",
        "cached",
        "entry_id",
        "expected_reads",
        "facts",
        "header",
        "holder",
        "inserted_at_ns",
        "ledger_id",
        "messages",
        "queued_at_ns",
        "requeue_count",
        "size",
    )
    # Slots, because millions of entries may be cached: a dictionary for each would cost more than the fields.

    def __init__(self, ledger_id: int, entry_id: int, header: bytes, body: Buffer, messages: int) -> None:
        """`header` and `body` together are the bytes that the bookie stores."""
        self.ledger_id = ledger_id
        """The ledger that the entry stands in."""
        self.entry_id = entry_id
        """Its number in the ledger, from 0."""
        self.header = header
        """The 0x0e02 broker entry metadata block (PIP-70), or nothing."""
        self.body = body
        """From the 0x0e01 checksum block (or the metadata size) to the end, as it came off the wire."""
        self.messages = messages
        """How many messages the entry holds, the unit of permits; 0 = its metadata was not read yet."""
        self.size = len(header) + len(body)
        """Bytes as stored and as accounted by the cache."""
        self.facts: MessageFacts | None = None
        """The few metadata fields that dispatchers need; read when the first one asks, None before."""
        self.cached = False
        """True while this object stands in its `RangeCache`."""
        self.holder: Holder | None = None
        """The range cache, while the entry has a slot in the policy's queue; it stays set after an invalidation."""
        self.inserted_at_ns = 0
        """When the entry entered the cache the last time, in monotonic nanoseconds."""
        self.queued_at_ns = 0
        """When the entry was inserted, or requeued the last time; under `pip430` the order of the queue."""
        self.expected_reads: int | None = None
        """How many readers are still to read it (PIP-430); None = not counted.

        Under profile 4.2 it may fall below zero. The policy `magnetar` counts redeliveries alone.
        """
        self.requeue_count = 0
        """How often the policy `pip430` has requeued the entry since its insertion."""
        self.accessed = False
        """True if a reader got it from the cache since the policy `pip430` looked at it the last time."""

    def twin(self) -> Entry:
        """Returns a second object for the same entry that shares its bytes, as it was before it was cached."""
        twin = Entry(self.ledger_id, self.entry_id, self.header, self.body, self.messages)
        twin.facts = self.facts
        return twin

    @property
    def position(self) -> Position:
        """The entry's ledger id and entry id."""
        return Position(self.ledger_id, self.entry_id)

    def __repr__(self) -> str:
        return f"<Entry {self.ledger_id}:{self.entry_id} {self.size} bytes>"
