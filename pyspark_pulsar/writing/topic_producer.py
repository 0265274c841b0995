"""One task's producer for one topic: rows become entries with the same borders each time, and each is stored once.

The broker remembers the highest sequence id per producer name. A task that runs again uses the same name, hears how
far the one before came, and goes on behind it. Entries must then begin and end at the same rows as before: the
broker drops an entry by its first sequence id, and would take rows behind the old one's end with it. So where
entries end follows from the rows alone: the first message alone, then as many as fit.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from protocol import requests
from protocol.pulsar_api_pb2 import CompressionType, MessageMetadata, Schema
from pyspark_pulsar.cutting.compression import pack
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.errors import PulsarSourceError
from pyspark_pulsar.writing.message_rows import MessageRows

_u32: Final = struct.Struct(">I")


class Entry(NamedTuple):
    """Without the producer's id, which a new connection changes."""

    first: int
    last: int
    """Sequence ids."""
    messages: int
    body: bytes


class EntrySettings(NamedTuple):
    messages_max: int
    bytes_max: int
    compression: int


class EntryCutter:
    """Cuts one topic's rows of one task into payloads of entries, whatever pieces the rows arrive in."""

    def __init__(self, settings: EntrySettings) -> None:
        self._settings = settings
        self._pending: list[MessageRows] = []
        self._messages = 0
        self._bytes = 0
        self._is_first = True

    def add(self, rows: MessageRows) -> Iterator[list[MessageRows]]:
        """The entries that are complete now, each in pieces that belong together."""
        ends = np.cumsum(rows.sizes())
        at = 0
        while at < len(ends):
            end, full = self._end_of_entry(ends, at)
            if end > at:
                self._pending.append(rows.slice(at, end))
                self._messages += end - at
                self._bytes += int(ends[end - 1] - (ends[at - 1] if at else 0))
            at = end
            if full:
                yield self._take()

    def _end_of_entry(self, ends: Ints, at: int) -> tuple[int, bool]:
        """Up to which row the entry goes, and whether it ends there."""
        messages_max = 1 if self._is_first else self._settings.messages_max
        before = int(ends[at - 1]) if at else 0
        room = self._settings.bytes_max - self._bytes
        by_bytes = int(np.searchsorted(ends, before + room, "right"))
        if not self._messages:
            by_bytes = max(by_bytes, at + 1)
        end = min(by_bytes, at + messages_max - self._messages)
        full = end < len(ends) or self._messages + end - at == messages_max
        return end, full

    def rest(self) -> list[MessageRows]:
        return self._take() if self._pending else []

    def _take(self) -> list[MessageRows]:
        taken = self._pending
        self._pending, self._messages, self._bytes, self._is_first = [], 0, 0, False
        return taken


def make_entry(
    pieces: list[MessageRows], producer_name: str, schema_version: bytes, settings: EntrySettings
) -> Entry:
    """A batch entry with its metadata and checksum."""
    payload = b"".join(
        memoryview(piece.data)[int(piece.offsets[0]) : int(piece.offsets[-1])] for piece in pieces
    )
    first, last = int(pieces[0].sequence_ids[0]), int(pieces[-1].sequence_ids[-1])
    messages = sum(len(piece.sequence_ids) for piece in pieces)
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=first,
        highest_sequence_id=last,
        publish_time=int(time.time() * 1000),
        num_messages_in_batch=messages,
    )
    if schema_version:
        metadata.schema_version = schema_version
    packed: bytes | pa.Buffer = payload
    if settings.compression != CompressionType.NONE:
        packed = pack(settings.compression, payload)
        metadata.compression = CompressionType.ValueType(settings.compression)
        metadata.uncompressed_size = len(payload)
    head = metadata.SerializeToString()
    head = _u32.pack(len(head)) + head
    checksum = crc32c(packed, crc32c(head))
    return Entry(first, last, messages, b"".join((b"\x0e\x01", _u32.pack(checksum), head, packed)))


class TopicProducer:
    """What is known of a producer on the broker, and which of its entries are not confirmed."""

    def __init__(self, topic: str, name: str, settings: EntrySettings, schema: Schema | None) -> None:
        self.topic = topic
        self.name = name
        self.schema = schema
        self.schema_version = b""
        self.producer_id = 0
        self.stored = -1
        """The highest sequence id that the broker has."""
        self.is_new = False
        """The broker did not know the producer's name when it was opened."""
        self.is_proven = False
        """The broker has shown that it remembers sequence ids."""
        self.pending: deque[Entry] = deque()
        self._first_refused = 0.0
        self._cutter = EntryCutter(settings)
        self._settings = settings

    def opened(self, producer_id: int, last_sequence_id: int, schema_version: bytes) -> None:
        self.producer_id = producer_id
        self._first_refused = 0.0
        self.schema_version = schema_version
        self.stored = max(self.stored, last_sequence_id)
        self.is_proven |= last_sequence_id >= 0
        self.pending = deque(entry for entry in self.pending if entry.last > self.stored)

    def add(self, rows: MessageRows) -> Iterator[Entry]:
        for pieces in self._cutter.add(rows):
            yield from self._entry(pieces)

    def rest(self) -> Iterator[Entry]:
        if pieces := self._cutter.rest():
            yield from self._entry(pieces)

    def _entry(self, pieces: list[MessageRows]) -> Iterator[Entry]:
        """Nothing for rows that are stored already."""
        if int(pieces[-1].sequence_ids[-1]) <= self.stored:
            return
        kept = [
            piece.slice(
                int(np.searchsorted(piece.sequence_ids, self.stored, "right")), len(piece.sequence_ids)
            )
            for piece in pieces
        ]
        yield make_entry(
            [piece for piece in kept if len(piece.sequence_ids)],
            self.name,
            self.schema_version,
            self._settings,
        )

    def frame(self, entry: Entry) -> bytes:
        head = requests.send_head(self.producer_id, entry.first, entry.last, entry.messages, len(entry.body))
        return head + entry.body

    def may_wait(self, timeout_s: float) -> bool:
        """Whether it is worth trying to open it again: for so long since the first time it was refused."""
        now = time.monotonic()
        self._first_refused = self._first_refused or now
        return now - self._first_refused < timeout_s

    def confirmed(self, sequence_id: int) -> int:
        """A receipt came; receipts come in the order of the entries. Answers the entry's bytes."""
        if not self.pending or self.pending[0].first != sequence_id:
            raise PulsarSourceError(f"{self.topic}: a receipt for {sequence_id}, which was not sent")
        entry = self.pending.popleft()
        self.stored = max(self.stored, entry.last)
        return len(entry.body)
