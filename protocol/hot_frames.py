"""Writes the two frames that leave once per message: SEND_RECEIPT and MESSAGE.

Few numbers change from one such frame to the next, so they are written around prepared bytes; a protobuf object per
message costs twice as much. (Reading is the other way round: protobuf's C parser reads a SEND faster than Python code
can.) Law: the bytes equal those of the general codec, which `tests/protocol/test_hot_frames.py` checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from protocol.frame import CHECKSUM_BLOCK_BYTES, SIZES, has_checksum
from protocol.varint import varint, varints

_pack = SIZES.pack
_NO_PARTITION = b"\x18" + varint(2**64 - 1)
_NO_FRAME = (0, b"", b"")


class ReceiptWriter:
    """Writes SEND_RECEIPTs of one producer; the ledger's bytes are kept until the ledger changes."""

    __slots__ = ("_before", "_ledger", "_ledger_id")

    def __init__(self, producer_id: int) -> None:
        self._before = b"\x08" + varint(producer_id) + b"\x10"
        # -1 is a ledger id here: it marks duplicates.
        self._ledger_id = -2
        self._ledger = b""

    def write_run(
        self, sequence_id: int, highest_sequence_id: int, step: int, count: int, ledger_id: int, entry_id: int
    ) -> bytes:
        """Returns the frames of several SENDs whose entries follow one another, and whose ids are `step` apart.

        The first one has these ids; a highest sequence id of 0 holds for all.
        """
        frame = self.write(sequence_id, highest_sequence_id, ledger_id, entry_id)
        sequence_ids = range(sequence_id, sequence_id + count * step, step)
        numbers, places = varints(sequence_ids), varints(range(entry_id, entry_id + count))
        first, entry = numbers[0], places[0]
        if highest_sequence_id or len(numbers[-1]) != len(first) or len(places[-1]) != len(entry):
            # Other numbers of bytes change the lengths in a frame, so each frame is written by itself.
            highest_ids = range(highest_sequence_id, highest_sequence_id + count * step, step)
            frames = [frame]
            for place in range(1, count):
                highest = highest_ids[place] if highest_sequence_id else 0
                frames.append(self.write(sequence_ids[place], highest, ledger_id, entry_id + place))
            return b"".join(frames)
        # All frames have the first one's bytes but for sequence id and entry id.
        end = len(frame) - 2
        before = frame[: end - len(entry) - len(self._ledger) - 2 - len(first)]
        between = frame[len(before) + len(first) : end - len(entry)]
        after = frame[end:] + before
        return (
            before
            + after.join([number + between + place for number, place in zip(numbers, places, strict=True)])
            + frame[end:]
        )

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
            varint(highest_sequence_id) if highest_sequence_id else b"\0",
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


SHARED_BYTES_MAX = 1 << 20
"""Bytes of a run up to which its frames are kept for other consumers."""
_SHARED_BODY_BYTES_MAX = 32 << 10
"""Mean size of bodies up to which they are copied into shared frames; larger ones cost less as they are."""
_Shape = tuple[int, bytes, bytes]
"""Everything that frames of two consumers may differ in besides the consumer id: its length, partition and epoch."""


class SharedRun:
    """The frames of the newest run of entries, for all consumers that receive the same run.

    With several subscriptions a topic's new entries go to one consumer after the other. Their frames differ in the consumer
    id alone, so the bytes between the ids are made once, and the frames of a consumer are these, joined by its id.
    """

    __slots__ = ("_entries", "_pieces", "_shape")

    def __init__(self) -> None:
        self._entries: list[Deliverable] = []
        self._shape: _Shape = (0, b"", b"")
        self._pieces: list[bytes] | None = None

    def pieces(self, entries: Sequence[Deliverable], shape: _Shape) -> list[bytes] | None:
        """Returns the bytes before, between and after the consumer ids of all frames.

        None for a run that comes for the first time, and for one that is too large: the plain way costs less.
        """
        # Entries are compared by identity: of a position a compacted ledger may have another entry than the log.
        if entries != self._entries:
            # A copy, because the caller's list is its own.
            self._entries = list(entries)
            self._shape = shape
            self._pieces = None
            return None
        if shape != self._shape:
            return None
        if self._pieces is None:
            size = sum([len(entry.body) for entry in entries])
            if size > min(SHARED_BYTES_MAX, _SHARED_BODY_BYTES_MAX * len(entries)):
                return None
            self._pieces = _pieces(entries, shape)
        return self._pieces


def _pieces(entries: Sequence[Deliverable], shape: _Shape) -> list[bytes]:
    digits, partition, tail = shape
    after = partition + tail
    pieces: list[bytes] = []
    ledger_id, ledger, rest = -1, b"", b""
    body: bytes | memoryview = b""
    for entry in entries:
        if entry.ledger_id != ledger_id:
            ledger_id = entry.ledger_id
            ledger = b"\x08" + varint(ledger_id) + b"\x10"
        number = varint(entry.entry_id)
        position_size = len(ledger) + len(number) + len(partition)
        size = 3 + digits + position_size + len(tail)
        # The command has 3 bytes more, and the frame the 4 bytes of the command's size.
        sizes = _pack(size + 8 + len(entry.body), size + 4)
        pieces.append(b"".join((rest, body, b"%b\x08\x09\x4a%c\x08" % (sizes, size))))
        rest = b"\x12%c%b%b%b" % (position_size, ledger, number, after)
        body = entry.body
    pieces.append(b"".join((rest, body)))
    return pieces


_SHAPES: Final[dict[_Shape, _Shape]] = {}
_SHAPES_MAX: Final = 1_000


class MessageWriter:
    """Writes MESSAGEs to one consumer; within a ledger only the entry id and the body change."""

    __slots__ = (
        "_digits",
        "_expose",
        "_frame",
        "_id",
        "_ledger_id",
        "_partition",
        "_shape",
        "_shared",
        "_strip",
        "_tail",
    )

    def __init__(
        self,
        consumer_id: int,
        *,
        partition: int = -1,
        epoch: int | None = None,
        expose_entry_metadata: bool = False,
        strip_checksum: bool = False,
        shared: SharedRun | None = None,
    ) -> None:
        """`shared`: that of all consumers of the broker; None for a writer on its own."""
        self._id = varint(consumer_id)
        self._partition = b"\x18" + varint(partition) if partition >= 0 else _NO_PARTITION
        self._tail = b"" if epoch is None else b"\x28" + varint(epoch)
        self._expose = expose_entry_metadata
        self._strip = strip_checksum
        # A writer that shows or takes away bytes of an entry shares nothing.
        self._shared = None if expose_entry_metadata or strip_checksum else shared
        self._shape = self._shared_shape()
        self._ledger_id = -1
        self._digits = 0
        self._frame = _NO_FRAME

    def renew_epoch(self, epoch: int) -> None:
        """Writes this consumer epoch into all later frames (PIP-84)."""
        self._tail = b"\x28" + varint(epoch)
        self._shape = self._shared_shape()
        # No ledger has this id, so the next entry prepares its frames anew, with the new epoch.
        self._ledger_id = -1

    def _shared_shape(self) -> _Shape:
        """Returns one tuple for all consumers of a shape; those of clients with epochs may have many."""
        shape = len(self._id), self._partition, self._tail
        if len(_SHAPES) >= _SHAPES_MAX:
            _SHAPES.clear()
        return _SHAPES.setdefault(shape, shape)

    def _prepare(self, ledger_id: int, digits: int) -> None:
        """Prepares the bytes around an entry id of so many bytes: the length fields depend on that length."""
        self._ledger_id, self._digits = ledger_id, digits
        ledger = b"\x08" + varint(ledger_id) + b"\x10"
        position_size = len(ledger) + digits + len(self._partition)
        consumer = b"\x08" + self._id
        size = len(consumer) + 2 + position_size + len(self._tail)
        # `%c` writes a length of one byte. It suffices: five numbers of ten bytes at most and their tags are 57 bytes.
        before = b"\x08\x09\x4a%c%b\x12%c%b" % (size, consumer, position_size, ledger)
        after = self._partition + self._tail
        self._frame = len(before) + digits + len(after), before, after

    def write(self, entries: Sequence[Deliverable], out: list[bytes | memoryview]) -> int:
        """Appends the frames of first deliveries to `out`; returns their bytes."""
        if self._shared is not None:
            pieces = self._shared.pieces(entries, self._shape)
            if pieces is not None:
                frames = self._id.join(pieces)
                out.append(frames)
                return len(frames)
        # Both are rare: entry metadata is shown on request (PIP-90), and clients below version 11 know no checksum.
        if self._expose or self._strip:
            return sum(self.write_one(entry, 0, (), out) for entry in entries)
        total = 0
        append = out.append
        for entry in entries:
            number = varint(entry.entry_id)
            if entry.ledger_id != self._ledger_id or len(number) != self._digits:
                self._prepare(entry.ledger_id, len(number))
            command_size, before, after = self._frame
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
        fields = b"\x08%b\x12%c%b" % (self._id, len(position), position)
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
