"""One topic's range while it is read: how far it is, what it may still be sent, which rows wait to be handed out."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pyspark_pulsar.client.connection import Connection
from pyspark_pulsar.cutting.entry_table import EntryTable
from pyspark_pulsar.cutting.protobuf_columns import Flags
from pyspark_pulsar.position import WHOLE, Position, TopicRange

WINDOW_BYTES: Final = 16 << 20
"""About so much may be on its way to the topic being read."""
WINDOW_MESSAGES_MIN: Final = 1000
WINDOW_MESSAGES_MAX: Final = 500_000
AHEAD_BYTES: Final = 1 << 20
AHEAD_MESSAGES_MAX: Final = 100
"""For a topic whose turn has not come."""
FIRST_BYTES_PER_MESSAGE: Final = 16_384
"""Assumed until messages have come."""


class LaneState(enum.Enum):
    CLOSED = enum.auto()
    OPENING = enum.auto()
    READING = enum.auto()
    DONE = enum.auto()


class Lane:
    def __init__(self, number: int, topic_range: TopicRange) -> None:
        self.number = number
        self.range = topic_range
        self.state = LaneState.CLOSED
        self.reached = topic_range.start
        self.is_head = False
        self.connection: Connection | None = None
        self.consumer_id = 0
        self.request_id = 0
        self.last_heard = 0.0
        self._first_refused = 0.0
        self._permits = 0
        self._rows: list[pa.RecordBatch] = []

    @property
    def is_open(self) -> bool:
        return self.state is not LaneState.CLOSED

    @property
    def has_reached_end(self) -> bool:
        return self.reached >= self.range.end._replace(batch=WHOLE)

    def opening(self, connection: Connection, consumer_id: int, request_id: int) -> None:
        self.connection, self.consumer_id, self.request_id = connection, consumer_id, request_id
        self.state = LaneState.OPENING
        self._permits = 0
        self.last_heard = time.monotonic()

    def may_try_again(self, timeout_s: float) -> bool:
        now = time.monotonic()
        self._first_refused = self._first_refused or now
        return now - self._first_refused < timeout_s

    def permits_due(self, bytes_per_message: float) -> int:
        """How many more messages to ask for, 0 while enough are on their way."""
        size = bytes_per_message or FIRST_BYTES_PER_MESSAGE
        if self.is_head:
            window = int(min(max(WINDOW_BYTES / size, WINDOW_MESSAGES_MIN), WINDOW_MESSAGES_MAX))
        else:
            window = int(min(max(AHEAD_BYTES / size, 1), AHEAD_MESSAGES_MAX))
        if self._permits > window // 2 or (not self.is_head and self._permits > 0):
            return 0
        due = window - self._permits
        self._permits = window
        return due

    def heard(self, messages: int) -> None:
        self._permits -= messages
        self.last_heard = time.monotonic()
        self._first_refused = 0.0

    def rows_of(self, entries: EntryTable, connection: Connection) -> Flags:
        found: Flags = (entries.consumer_ids == self.consumer_id) & (connection is self.connection)
        return found

    def move_to(self, position: Position) -> None:
        self.reached = max(self.reached, position)

    def finish(self) -> None:
        self.state = LaneState.DONE

    def add_rows(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._rows.append(batch)

    def take_rows(self) -> Iterator[pa.RecordBatch]:
        while self._rows:
            yield self._rows.pop(0)
