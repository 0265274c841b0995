"""One task's producer for one topic: rows become entries with the same borders each time, and each is stored once.

The broker remembers the highest sequence id per producer name. A task that runs again uses the same name, is told that
id when it opens the producer, and continues after it.

Law: the borders of entries follow from the rows alone (the first message alone, then as many as fit), never from time
or from the Arrow batches in which rows arrive. The broker drops an entry if its first sequence id is not above the
highest it has stored. With other borders at the second attempt, an entry could begin with a stored row and end with new
ones, and the new rows would be dropped with it.

The first entry holds one message: where the broker refused the probe (`deduplication_probe`), the sink finds out after
one row that deduplication is missing. Keep it: other borders would meet the first entry of an unfinished task.
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
from protocol.pulsar_api_pb2 import CompressionType, MessageMetadata
from pyspark_pulsar.cutting.compression import pack
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.errors import PulsarSourceError
from pyspark_pulsar.writing.message_rows import MessageRows

_u32: Final = struct.Struct(">I")


class UnsentEntry(NamedTuple):
    """An entry ready to send, except for the producer id, which changes with each connection."""

    first: int
    """Sequence id of the first message."""
    last: int
    """Sequence id of the last message."""
    messages: int
    """Messages in the entry; its sequence ids may have gaps, if rows go to several topics."""
    body: bytes
    """Checksum, metadata and payload."""


class EntrySettings(NamedTuple):
    """Borders and form of entries; must stay the same while a batch is unfinished."""

    messages_max: int
    """Messages of an entry, except the first, which has one."""
    bytes_max: int
    """Bytes before compression; an entry of one message may have more."""
    compression: int
    """Number in the protocol's enum CompressionType."""


class EntryCutter:
    """Groups one topic's rows of one task into entries, the same way for any pieces in which the rows arrive."""

    def __init__(self, settings: EntrySettings) -> None:
        self._settings = settings
        self._pending: list[MessageRows] = []
        self._messages = 0
        self._bytes = 0
        self._is_first = True

    def add(self, rows: MessageRows) -> Iterator[list[MessageRows]]:
        """Yields the entries that are complete now, each as a list of consecutive pieces."""
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
        """Returns the row after the last that fits into the entry, and True if the entry is complete with it."""
        messages_max = 1 if self._is_first else self._settings.messages_max
        before = int(ends[at - 1]) if at else 0
        free = self._settings.bytes_max - self._bytes
        by_bytes = int(np.searchsorted(ends, before + free, "right"))
        # An empty entry accepts a message of any size; the publisher refuses it if the broker's limit is lower.
        if not self._messages:
            by_bytes = max(by_bytes, at + 1)
        end = min(by_bytes, at + messages_max - self._messages)
        full = end < len(ends) or self._messages + end - at == messages_max
        return end, full

    def rest(self) -> list[MessageRows]:
        """Removes and returns the rows of the last, incomplete entry; empty if there are none."""
        return self._take() if self._pending else []

    def _take(self) -> list[MessageRows]:
        taken = self._pending
        self._pending, self._messages, self._bytes, self._is_first = [], 0, 0, False
        return taken


def make_entry(
    pieces: list[MessageRows], producer_name: str, schema_version: bytes, settings: EntrySettings
) -> UnsentEntry:
    """Builds a batch entry with metadata and checksum. The publish time is the time of the call."""
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
    return UnsentEntry(first, last, messages, b"".join((b"\x0e\x01", _u32.pack(checksum), head, packed)))


class TopicProducer:
    """The state of one producer: what the broker has stored, and which entries have no receipt yet.

    Survives connections; lost with the task, because the broker returns `stored` to the next one.
    """

    def __init__(self, topic: str, name: str, settings: EntrySettings) -> None:
        self.topic = topic
        """Full name of a topic or partition."""
        self.producer_id = 0
        """Id on the present connection."""
        self.stored = -1
        """The highest sequence id that the broker has stored, -1 for none."""
        self.is_new = False
        """True if the broker knew no sequence id of the producer's name when the task opened it first."""
        self.is_deduplicated = False
        """True once the broker has returned a sequence id, which it does only with deduplication."""
        self.pending: deque[UnsentEntry] = deque()
        """Entries that were sent and have no receipt, in order."""
        self._name = name
        self._schema_version = b""
        self._first_refused = 0.0
        self._cutter = EntryCutter(settings)
        self._settings = settings

    def opened(self, producer_id: int, last_sequence_id: int, schema_version: bytes) -> None:
        """Notes the broker's PRODUCER_SUCCESS; drops pending entries that it has stored before a break.

        `last_sequence_id` is -1 where the broker knows none, or does not deduplicate.
        """
        self.producer_id = producer_id
        self._first_refused = 0.0
        self._schema_version = schema_version
        self.stored = max(self.stored, last_sequence_id)
        self.is_deduplicated |= last_sequence_id >= 0
        self.pending = deque(entry for entry in self.pending if entry.last > self.stored)

    def add(self, rows: MessageRows) -> Iterator[UnsentEntry]:
        """Yields the entries that `rows` complete, without rows that are stored already."""
        for pieces in self._cutter.add(rows):
            yield from self._entry(pieces)

    def rest(self) -> Iterator[UnsentEntry]:
        """Yields the last entry, at the end of the task."""
        if pieces := self._cutter.rest():
            yield from self._entry(pieces)

    def _entry(self, pieces: list[MessageRows]) -> Iterator[UnsentEntry]:
        # Usually `stored` is the end of an entry. It is inside one if the sink's batching options were changed between
        # the attempts; then the rows after it become an entry of their own.
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
            self._name,
            self._schema_version,
            self._settings,
        )

    def frame(self, entry: UnsentEntry) -> bytes:
        """Returns the SEND frame of an entry for the present connection."""
        head = requests.send_head(self.producer_id, entry.first, entry.last, entry.messages, len(entry.body))
        return head + entry.body

    def may_retry(self, timeout_s: float) -> bool:
        """Returns True for `timeout_s` after the first refusal to open it."""
        now = time.monotonic()
        self._first_refused = self._first_refused or now
        return now - self._first_refused < timeout_s

    def confirmed(self, sequence_id: int) -> int:
        """Notes a receipt and returns the entry's bytes. Receipts come in the order of the entries.

        PulsarSourceError for a receipt out of order: the broker breaks the protocol.
        """
        if not self.pending or self.pending[0].first != sequence_id:
            raise PulsarSourceError(
                f"{self.topic}: the broker sent a receipt for sequence id {sequence_id} out of order; run the query again"
            )
        entry = self.pending.popleft()
        self.stored = max(self.stored, entry.last)
        return len(entry.body)
