"""The block that the broker puts in front of an entry: 0x0e02, uint32 size, BrokerEntryMetadata (PIP-70, PIP-90).

`broker_timestamp` (ms) is when the broker took the entry, `index` the number of the entry's last message in
its topic, counted from 0. The block is outside the message's checksum, so it comes and goes without recomputing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protocol.pulsar_api_pb2 import BrokerEntryMetadata
from protocol.varint import varint

MAGIC: Final = b"\x0e\x02"
_HEAD: Final = struct.Struct(">2sI")

_HEADS: Final = [b"", *(_HEAD.pack(MAGIC, size) for size in range(1, 32))]
"""What stands in front of so many bytes of fields; a block without fields is no block."""


@dataclass(frozen=True, slots=True)
class EntryMetadata:
    broker_timestamp_ms: int | None
    index: int | None


class EntryStamp:
    """Stamps the entries of one topic as the configured interceptors say, and counts its messages."""

    __slots__ = ("_index_on", "_last_ms", "_now_ms", "_time_field", "_timestamp_on", "index")

    def __init__(self, *, timestamp: bool, index: bool, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._timestamp_on = timestamp
        self._index_on = index
        self._last_ms = -1
        self._time_field = b""
        self.index = -1
        """The number of the last message stamped; -1 before the first."""

    def stamp(self, messages: int) -> bytes:
        """The block for an entry of so many messages, or nothing when no interceptor is configured."""
        if self._timestamp_on:
            now_ms = self._now_ms()
            if now_ms != self._last_ms:
                self._last_ms = now_ms
                self._time_field = b"\x08" + varint(now_ms)
        fields = self._time_field
        if self._index_on:
            self.index = index = self.index + messages
            fields = b"%b\x10%b" % (fields, varint(index))
        return _HEADS[len(fields)] + fields

    def rollback(self, messages: int) -> None:
        """An entry that was stamped could not be stored."""
        if self._index_on:
            self.index -= messages


def split(payload: memoryview) -> tuple[bytes, memoryview]:
    """A stored payload as (block or b"", body). ValueError where the block's size cannot be."""
    if len(payload) < _HEAD.size or payload[0] != 0x0E or payload[1] != 0x02:
        return b"", payload
    end = _HEAD.size + _HEAD.unpack_from(payload)[1]
    if end > len(payload):
        raise ValueError(f"broker entry metadata of {end - _HEAD.size} bytes in {len(payload)}")
    return bytes(payload[:end]), payload[end:]


def decode(block: bytes) -> EntryMetadata:
    if not block:
        return EntryMetadata(None, None)
    message = BrokerEntryMetadata.FromString(block[_HEAD.size :])
    return EntryMetadata(
        message.broker_timestamp if message.HasField("broker_timestamp") else None,
        message.index if message.HasField("index") else None,
    )
