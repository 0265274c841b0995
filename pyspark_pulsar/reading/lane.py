"""The state of one topic's range while a task reads it: position reached, permits granted, rows not yet yielded."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pyspark_pulsar.client.connection import BrokerConnection
from pyspark_pulsar.cutting.entry_table import EntryTable
from pyspark_pulsar.cutting.protobuf_columns import Flags
from pyspark_pulsar.position import WHOLE, MessagePosition, TopicRange

WINDOW_BYTES: Final = 16 << 20
"""Permits are messages; this many bytes of them, about, are granted to the head lane."""
WINDOW_MESSAGES_MIN: Final = 1000
"""Lower limit of the head lane's window, for large messages."""
WINDOW_MESSAGES_MAX: Final = 500_000
"""Upper limit of the head lane's window, for small messages."""
AHEAD_BYTES: Final = 1 << 20
"""Bytes granted, about, to a lane after the head."""
AHEAD_MESSAGES_MAX: Final = 100
"""Upper limit of the window of a lane after the head."""
FIRST_BYTES_PER_MESSAGE: Final = 16_384
"""Size of a message assumed before the first has come; large, so that the first grant is cautious."""


class LaneState(enum.Enum):
    """How far the consumer of a lane is."""

    CLOSED = enum.auto()
    """Not subscribed yet."""
    OPENING = enum.auto()
    """SUBSCRIBE is sent; the answer has not come."""
    READING = enum.auto()
    """Subscribed; messages may come."""
    DONE = enum.auto()
    """Read to the end, or given up after a data loss. Final."""


class Lane:
    """One range of one topic, read by one non-durable consumer. Only `RangeReader` uses it."""

    def __init__(self, number: int, topic_range: TopicRange) -> None:
        self.number = number
        """Index of the range in its task."""
        self.range = topic_range
        """The part of the topic to read."""
        self.state = LaneState.CLOSED
        """Written by `opening`, `finish` and the reader, when the subscription is answered."""
        self.reached = topic_range.start
        """The last message whose row is built; a lane that reconnects continues after it."""
        self.is_head = False
        """True for the lane whose rows are yielded now; it is granted a large window."""
        self.connection: BrokerConnection | None = None
        """Shared with other lanes of the same broker; None before the first subscribe."""
        self.consumer_id = 0
        """Unique in the task, on all connections; another one after each reconnect."""
        self.request_id = 0
        """Id of the pending SUBSCRIBE."""
        self.last_heard = 0.0
        """`time.monotonic()` of the last message or subscribe."""
        self._first_refused = 0.0
        self._permits = 0
        self._rows: list[pa.RecordBatch] = []

    @property
    def has_reached_end(self) -> bool:
        """True once the range's last entry, or one after it, has arrived."""
        return self.reached >= self.range.end._replace(batch=WHOLE)

    def opening(self, connection: BrokerConnection, consumer_id: int, request_id: int) -> None:
        """Notes that SUBSCRIBE was sent; permits of the former consumer are void."""
        self.connection, self.consumer_id, self.request_id = connection, consumer_id, request_id
        self.state = LaneState.OPENING
        self._permits = 0
        self.last_heard = time.monotonic()

    def may_retry(self, timeout_s: float) -> bool:
        """Returns True for `timeout_s` after the first refusal since messages last came."""
        now = time.monotonic()
        self._first_refused = self._first_refused or now
        return now - self._first_refused < timeout_s

    def permits_due(self, bytes_per_message: float) -> int:
        """Returns the permits to grant now and counts them as granted; 0 while more than half are unused."""
        size = bytes_per_message or FIRST_BYTES_PER_MESSAGE
        if self.is_head:
            window = int(min(max(WINDOW_BYTES / size, WINDOW_MESSAGES_MIN), WINDOW_MESSAGES_MAX))
        else:
            window = int(min(max(AHEAD_BYTES / size, 1), AHEAD_MESSAGES_MAX))
        # After the head only a lane without any permit gets more: its rows stay in memory until it becomes the head.
        if self._permits > window // 2 or (not self.is_head and self._permits > 0):
            return 0
        due = window - self._permits
        self._permits = window
        return due

    def heard(self, messages: int) -> None:
        """Notes that so many messages arrived, each of which uses a permit."""
        self._permits -= messages
        self.last_heard = time.monotonic()
        self._first_refused = 0.0

    def rows_of(self, entries: EntryTable) -> Flags:
        """Returns True for the entries that were sent to this lane's consumer."""
        found: Flags = entries.consumer_ids == self.consumer_id
        return found

    def move_to(self, position: MessagePosition) -> None:
        """Notes that rows are built up to `position`; never moves back."""
        self.reached = max(self.reached, position)

    def finish(self) -> None:
        """Ends the lane; rows that are built are still yielded."""
        self.state = LaneState.DONE

    def add_rows(self, batch: pa.RecordBatch) -> None:
        """Keeps rows until the lane is the head."""
        if batch.num_rows:
            self._rows.append(batch)

    def take_rows(self) -> Iterator[pa.RecordBatch]:
        """Removes and yields the rows that are built."""
        while self._rows:
            yield self._rows.pop(0)
