"""Broker entry metadata: the block that the broker puts in front of each entry (PIP-70, PIP-90).

Layout: 0x0e02, uint32 size, BrokerEntryMetadata. `broker_timestamp` is the time at which the broker received the entry, in
milliseconds, and never below that of an entry before it in the topic, because searches by time need the order. `index` is
the number of the entry's last message in its topic, counted from 0. The message's checksum does not cover the block, so it
can be added and removed without a new checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protocol.pulsar_api_pb2 import BrokerEntryMetadata
from protocol.varint import varint, varints

MAGIC: Final = b"\x0e\x02"
"""First bytes of the block; a message without the block begins with 0x0e01 or its metadata size."""
_HEAD: Final = struct.Struct(">2sI")

STAMP_BYTES_MAX: Final = 31
"""Bytes of a block at most: its head, and two numbers of at most ten bytes with their tags."""
_HEADS: Final = [b"", *(_HEAD.pack(MAGIC, size) for size in range(1, STAMP_BYTES_MAX - _HEAD.size + 1))]
"""Magic and size by the number of bytes that follow; a block without fields is left out."""


@dataclass(frozen=True, slots=True)
class EntryMetadata:
    """Contents of one block."""

    broker_timestamp_ms: int | None
    """Wall clock of the broker, None = absent."""
    index: int | None
    """Number of the entry's last message in its topic, None = absent."""


class ClockClamps:
    """Counts entries whose timestamp is later than the clock; one object for all topics of a broker."""

    def __init__(self) -> None:
        self.entries = 0
        """Entries that got the timestamp of the entry before, because the clock had gone back."""


class EntryStamp:
    """Makes the blocks of one topic's entries and counts its messages."""

    __slots__ = ("_clamps", "_index_on", "_now_ms", "_time_field", "_timestamp_on", "index", "last_ms")

    bytes_max = STAMP_BYTES_MAX
    """Bytes of one of its blocks at most."""

    def __init__(
        self, *, timestamp: bool, index: bool, now_ms: Callable[[], int], clamps: ClockClamps | None = None
    ) -> None:
        self._now_ms = now_ms
        self._timestamp_on = timestamp
        self._index_on = index
        self._clamps = clamps or ClockClamps()
        self._time_field = b""
        self.last_ms = -1
        """Timestamp of the last entry stamped, -1 without one; `resume` sets it when the log is opened."""
        self.index = -1
        """Number of the last message stamped, -1 before the first; set when the log is opened."""

    @property
    def has_timestamps(self) -> bool:
        """True where the blocks have a timestamp."""
        return self._timestamp_on

    def resume(self, last_ms: int) -> None:
        """Goes on after an entry with this timestamp; does nothing without timestamps."""
        if self._timestamp_on and last_ms > self.last_ms:
            self.last_ms = last_ms
            self._time_field = b"\x08" + varint(last_ms)

    def stamp(self, messages: int, count: int) -> list[bytes]:
        """Returns the blocks for `count` entries of so many messages each; b"" without interceptors."""
        if self._timestamp_on:
            now_ms = self._now_ms()
            # Many entries share a millisecond, so the encoded field is kept.
            if now_ms != self.last_ms:
                if now_ms > self.last_ms:
                    self.last_ms = now_ms
                    self._time_field = b"\x08" + varint(now_ms)
                else:
                    self._clamps.entries += count
        fields = self._time_field
        if not self._index_on:
            return [_HEADS[len(fields)] + fields] * count
        fields += b"\x10"
        # The index of an entry's last message: for a batch of 3 after index 0 it is 3, as recorded of Pulsar.
        first = self.index + messages
        self.index += messages * count
        if count == 1:
            fields += varint(first)
            return [_HEADS[len(fields)] + fields]
        numbers = varints(range(first, self.index + 1, messages))
        if len(numbers[0]) == len(numbers[-1]):
            before = _HEADS[len(fields) + len(numbers[0])] + fields
            return [before + number for number in numbers]
        return [_HEADS[len(fields) + len(number)] + fields + number for number in numbers]

    def rollback(self, messages: int) -> None:
        """Takes back the numbers of an entry that was not stored."""
        if self._index_on:
            self.index -= messages


def split(payload: memoryview) -> tuple[bytes, memoryview]:
    """Splits a stored payload into (block or b"", body). ValueError when the block is longer than the payload."""
    if len(payload) < _HEAD.size or payload[0] != 0x0E or payload[1] != 0x02:
        return b"", payload
    end = _HEAD.size + _HEAD.unpack_from(payload)[1]
    if end > len(payload):
        raise ValueError(f"broker entry metadata of {end - _HEAD.size} bytes in an entry of {len(payload)}")
    return bytes(payload[:end]), payload[end:]


def decode(block: bytes) -> EntryMetadata:
    """Returns the contents of a block; both fields None for b""."""
    if not block:
        return EntryMetadata(None, None)
    message = BrokerEntryMetadata.FromString(block[_HEAD.size :])
    return EntryMetadata(
        message.broker_timestamp if message.HasField("broker_timestamp") else None,
        message.index if message.HasField("index") else None,
    )
