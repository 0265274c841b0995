"""Entry: the bytes of one SEND, where it stands, and what the entry cache knows of it.

One object per entry serves the ledger handle, the entry cache and every dispatcher, so that nothing
is copied or parsed again on the way; the cache's own fields are written by `entry_cache` alone,
except `expected_reads`, which falls at the hand-over to a consumer and rises at a replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from broker.model.position import Position

if TYPE_CHECKING:
    from protocol.message_metadata import MessageFacts

Buffer: TypeAlias = bytes | memoryview


class Holder(Protocol):
    """The part of the entry cache that an entry stands in: the cached entries of one ledger."""

    entries: dict[int, Entry]
    size_bytes: int


class Entry:
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

    def __init__(self, ledger_id: int, entry_id: int, header: bytes, body: Buffer, messages: int) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.header = header
        """The 0x0e02 broker entry metadata block (PIP-70), or nothing."""
        self.body = body
        """From the 0x0e01 checksum block (or the metadata size) to the end, as it came off the wire."""
        self.messages = messages
        """How many messages the entry holds: permits and counters are counted in these. 0 = not read yet."""
        self.size = len(header) + len(body)
        """Bytes as stored and as accounted by the cache."""
        self.facts: MessageFacts | None = None
        """The few metadata fields that dispatchers ask for, read once when the first one asks."""
        self.cached = False
        self.holder: Holder | None = None
        """Set while the entry has a slot in the removal queue, cached or not."""
        self.inserted_at_ns = 0
        """When the entry last entered the cache."""
        self.queued_at_ns = 0
        """When the entry last joined the removal queue."""
        self.expected_reads = 0
        """How many active cursors are still to read it (PIP-430); -1 = never counted. The cache's policy alone
        counts it down and up; below -1: see `entry_cache.policies.profile`."""
        self.requeue_count = 0
        self.accessed = False
        """Read since the removal queue last looked at it."""

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def __repr__(self) -> str:
        return f"<Entry {self.ledger_id}:{self.entry_id} {self.size} bytes>"
