"""Writes the two frames that leave once per message: SEND_RECEIPT and MESSAGE.

Few numbers change from one such frame to the next, so they are written around prepared bytes; a protobuf object per
message costs twice as much. (Reading is the other way round: protobuf's C parser reads a SEND faster than Python code
can.) Law: the bytes equal those of the general codec, which `tests/protocol/test_hot_frames.py` checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocol.frame import CHECKSUM_BLOCK_BYTES, SIZES, has_checksum
from protocol.varint import varint

_pack = SIZES.pack
_MINUS_ONE = varint(2**64 - 1)


class ReceiptWriter:
    """Writes SEND_RECEIPTs of one producer; the ledger's bytes are kept until the ledger changes."""

    __slots__ = ("_before", "_ledger", "_ledger_id")

    def __init__(self, producer_id: int) -> None:
        self._before = b"\x08" + varint(producer_id) + b"\x10"
        # -1 is a ledger id here: it marks duplicates.
        self._ledger_id = -2
        self._ledger = b""

    def write(self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int) -> bytes:
        """Returns the frame. Ledger and entry -1 mark a duplicate of a stored message."""
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._ledger = b"\x08" + varint(ledger_id & 0xFFFF_FFFF_FFFF_FFFF) + b"\x10"
        position = self._ledger + varint(entry_id & 0xFFFF_FFFF_FFFF_FFFF)
        fields = b"%b%b\x1a%c%b\x20%b" % (
            self._before,
            varint(sequence_id),
            len(position),
            position,
            varint(highest_sequence_id),
        )
        size = len(fields)
        # `%c` writes a length of one byte.
        if size < 0x80:
            return b"%b\x08\x07\x3a%c%b" % (_pack(size + 8, size + 4), size, fields)
        # Five varints of ten bytes at most, and their tags: a length of one byte always suffices.
        raise AssertionError(f"receipt of {size} bytes; five numbers cannot take so many")


class Deliverable(Protocol):
    """An entry as a MESSAGE needs it; the broker's `Entry` is one."""

    ledger_id: int
    """Position, first part."""
    entry_id: int
    """Position, second part."""
    header: bytes
    """Broker entry metadata block, b"" = none."""
    body: bytes | memoryview
    """Checksum, message metadata and payload, as the producer sent them."""


class MessageWriter:
    """Writes MESSAGEs to one consumer; within a ledger only the entry id and the body change."""

    __slots__ = ("_consumer", "_expose", "_frames", "_ledger_id", "_partition", "_strip", "_tail")

    def __init__(
        self,
        consumer_id: int,
        *,
        partition: int = -1,
        epoch: int | None = None,
        expose_entry_metadata: bool = False,
        strip_checksum: bool = False,
    ) -> None:
        self._consumer = b"\x08" + varint(consumer_id)
        self._partition = b"\x18" + (varint(partition) if partition >= 0 else _MINUS_ONE)
        self._tail = b"" if epoch is None else b"\x28" + varint(epoch)
        self._expose = expose_entry_metadata
        self._strip = strip_checksum
        self._ledger_id = -1
        self._frames: list[tuple[int, bytes, bytes]] = []

    def renew_epoch(self, epoch: int) -> None:
        """Writes this consumer epoch into all later frames (PIP-84)."""
        self._tail = b"\x28" + varint(epoch)
        # No ledger has this id, so the next entry prepares its frames anew, with the new epoch.
        self._ledger_id = -1

    def _prepare(self, ledger_id: int) -> None:
        """Prepares the bytes around entry ids of one to ten bytes: the length fields depend on that length."""
        self._ledger_id = ledger_id
        ledger = b"\x08" + varint(ledger_id) + b"\x10"
        # Index 0 is never used: a varint has at least one byte.
        self._frames = [(0, b"", b"")]
        for digits in range(1, 11):
            position_size = len(ledger) + digits + len(self._partition)
            size = len(self._consumer) + 2 + position_size + len(self._tail)
            # `%c` writes a length of one byte. It suffices: five numbers of ten bytes at most and their tags are 57
            # bytes.
            before = b"\x08\x09\x4a%c%b\x12%c%b" % (size, self._consumer, position_size, ledger)
            after = self._partition + self._tail
            self._frames.append((len(before) + digits + len(after), before, after))

    def write(self, entries: Sequence[Deliverable], out: list[bytes | memoryview]) -> int:
        """Appends the frames of first deliveries to `out`; returns their bytes."""
        # Both are rare: entry metadata is shown on request (PIP-90), and clients below version 11 know no checksum.
        if self._expose or self._strip:
            return sum(self.write_one(entry, 0, (), out) for entry in entries)
        total = 0
        append = out.append
        for entry in entries:
            if entry.ledger_id != self._ledger_id:
                self._prepare(entry.ledger_id)
            number = varint(entry.entry_id)
            command_size, before, after = self._frames[len(number)]
            body = entry.body
            # The frame's total counts the 4 bytes of the command size, and not its own.
            size = command_size + 4 + len(body)
            # The body is appended by itself: a copy of it per consumer would cost more than a longer list.
            append(b"%b%b%b%b" % (_pack(size, command_size), before, number, after))
            append(body)
            total += size + 4
        return total

    def write_one(
        self,
        entry: Deliverable,
        redelivery_count: int,
        ack_set: Sequence[int],
        out: list[bytes | memoryview],
    ) -> int:
        """Appends one frame with redelivery count and ack set; returns its bytes."""
        # Nothing prepared: redelivery count and ack set change the length of every field around them.
        ledger = b"\x08" + varint(entry.ledger_id) + b"\x10" + varint(entry.entry_id)
        position = ledger + self._partition
        fields = b"%b\x12%c%b" % (self._consumer, len(position), position)
        if redelivery_count:
            fields += b"\x18" + varint(redelivery_count)
        for word in ack_set:
            # Protobuf writes a negative int64 as its two's complement, in ten bytes.
            fields += b"\x20" + varint(word & 0xFFFF_FFFF_FFFF_FFFF)
        fields += self._tail
        command = b"\x08\x09\x4a" + varint(len(fields)) + fields
        body = self._body(entry)
        header = entry.header if self._expose else b""
        size = 4 + len(command) + len(header) + len(body)
        out.append(_pack(size, len(command)) + command + header)
        out.append(body)
        return size + 4

    def _body(self, entry: Deliverable) -> bytes | memoryview:
        if self._strip and has_checksum(entry.body):
            return memoryview(entry.body)[CHECKSUM_BLOCK_BYTES:]
        return entry.body
