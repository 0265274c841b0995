"""A task's work: reads ranges of topics from their brokers and yields Arrow batches.

Law: rows come topic by topic in the order of the ranges, and within a topic in the order of its messages, whatever
arrives first. So a task that runs again yields the same rows in the same order, on which the sink's exactly-once
guarantee rests (`writing/topic_producer.py`).

The range being yielded is the head lane. The next `OPEN_AHEAD` lanes are subscribed already and are granted a few
permits, so that small topics do not cost a round trip each. The loop:

    batches -> _rows_of(head) -> _pump: receive -> _receive: cut, keep what is in range, build rows, move on
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from protocol import requests
from pyspark_pulsar.client.cluster import NOT_FOUND, TRY_AGAIN, Cluster, ask_last, unused_name
from pyspark_pulsar.client.connection import BrokerConnection
from pyspark_pulsar.columns.arrow_spans import numbers, texts
from pyspark_pulsar.columns.batch_builder import BatchBuilder, Cuts
from pyspark_pulsar.columns.metadata_columns import Origin
from pyspark_pulsar.cutting.chunks import Chunks, Parts, parts_of
from pyspark_pulsar.cutting.decryption import Decryption
from pyspark_pulsar.cutting.entry_table import EntryField, EntryTable, cut_entries
from pyspark_pulsar.cutting.messages import Messages
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.errors import BrokerLost, BrokerRefused, DataLoss, PulsarSourceError
from pyspark_pulsar.position import WHOLE, MessagePosition, TopicRange
from pyspark_pulsar.reading.lane import Lane, LaneState
from pyspark_pulsar.topic_names import partition_of

log = logging.getLogger("pyspark_pulsar")

OPEN_AHEAD: Final = 32
"""Lanes after the head that are subscribed already."""
CHUNK_BYTES: Final = 4 << 20
"""Bytes of messages that are cut together, if so many arrive: a numpy step costs the same for few and for many."""
BUFFER_BYTES: Final = 2 * CHUNK_BYTES
"""Size of a receive buffer; twice a chunk, so that a chunk rarely makes it grow."""
QUIET_S: Final = 0.02
"""Silence, in seconds, after which fewer bytes are cut too."""
IDLE_CHECK_S: Final = 1.0
"""Silence, in seconds, after which the broker is asked for the end of the topic."""
ROWS_PER_BATCH: Final = 8192
"""Batches with fewer rows are concatenated: Spark has a fixed cost per batch."""
LOOK_BACK_ENTRIES: Final = 1000
"""Entries before a message's last chunk among which its first chunks are searched."""
LOST_PAUSE_S: Final = 0.2
"""Seconds between two attempts to subscribe again."""


class ReadSettings(NamedTuple):
    """The options that matter while a task reads."""

    fail_on_data_loss: bool
    """True raises DataLoss; False logs a warning and continues."""
    poll_timeout_s: float
    """Limit for the silence of a broker that still has messages in the range."""
    subscription: str
    """Prefix of the short-lived subscriptions."""
    private_keys: Mapping[str, bytes]
    """PEM by the name of the public key; the empty name stands for every other one."""
    discard_encrypted: bool
    """True leaves entries out that cannot be decrypted; False raises MalformedEntry."""


class RangeReader:
    """Reads the ranges of one task, once. Not thread-safe; the caller closes the cluster."""

    def __init__(
        self, cluster: Cluster, ranges: Sequence[TopicRange], builder: BatchBuilder, settings: ReadSettings
    ) -> None:
        self._cluster = cluster
        self._builder = builder
        self._settings = settings
        self._lanes = [Lane(number, one) for number, one in enumerate(ranges)]
        self._consumer_ids = itertools.count(1)
        # One count for all brokers: rows and chunks are told apart by consumer id alone, whichever broker sent them.
        self._by_consumer: dict[int, Lane] = {}
        self._names = texts([one.topic for one in ranges])
        self._partitions = np.array([partition_of(one.topic) for one in ranges], np.int64)
        self._chunks = Chunks()
        self._decryption = Decryption(settings.private_keys, discard=settings.discard_encrypted)
        self._opened = 0
        self._active: list[Lane] = []
        """Lanes that are opened and not done."""
        self._bytes_per_message = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows of the ranges. DataLoss, BrokerLost, BrokerRefused, MalformedEntry.

        PulsarSourceError where a broker that has more messages sends none for `poll_timeout_s`.
        """
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for lane in self._lanes:
            for batch in self._rows_of(lane):
                waiting.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows >= ROWS_PER_BATCH or size >= CHUNK_BYTES:
                    yield _together(waiting)
                    waiting = []
                    rows = size = 0
        if waiting:
            yield _together(waiting)

    def _rows_of(self, lane: Lane) -> Iterator[pa.RecordBatch]:
        self._open_ahead(lane)
        lane.is_head = True
        lane.last_heard = time.monotonic()
        while True:
            yield from lane.take_rows()
            if lane.state is LaneState.DONE:
                return
            try:
                self._pump(lane)
            except BrokerLost as error:
                self._recover(error)

    # Opening

    def _open_ahead(self, head: Lane) -> None:
        if self._opened <= head.number + OPEN_AHEAD // 2:
            lanes = self._lanes[self._opened : head.number + OPEN_AHEAD + 1]
            self._opened += len(lanes)
            self._active.extend(lanes)
            if lanes:
                self._open(lanes)

    def _open(self, lanes: Sequence[Lane]) -> None:
        """Subscribes lanes without waiting for the answers, which `_notice_answers` reads."""
        try:
            owners = self._cluster.owners([lane.range.topic for lane in lanes])
            for lane, owner in zip(lanes, owners, strict=True):
                self._subscribe(lane, self._cluster.connection(owner))
        except BrokerLost as error:
            self._recover(error)

    def _subscribe(self, lane: Lane, connection: BrokerConnection) -> None:
        request_id, consumer_id = connection.next_id(), next(self._consumer_ids)
        lane.opening(connection, consumer_id, request_id)
        self._by_consumer[consumer_id] = lane
        connection.expect((request_id,))
        name = unused_name(self._settings.subscription)
        start = lane.reached.first_entry()
        connection.send(requests.subscribe_reader(request_id, consumer_id, lane.range.topic, name, start))

    def _recover(self, error: BrokerLost) -> None:
        """Subscribes all active lanes again after the positions they have reached; retries for the timeout."""
        deadline = time.monotonic() + self._cluster.settings.timeout_s
        log.warning("%s; connecting again", error)
        self._cluster.close()
        self._by_consumer.clear()
        while True:
            try:
                owners = self._cluster.owners([lane.range.topic for lane in self._active])
                for lane, owner in zip(self._active, owners, strict=True):
                    self._subscribe(lane, self._cluster.connection(owner))
                return
            except (BrokerLost, BrokerRefused) as again:
                if isinstance(again, BrokerRefused) and again.code not in TRY_AGAIN:
                    raise
                if time.monotonic() > deadline:
                    raise
                self._cluster.close()
                self._by_consumer.clear()
                time.sleep(LOST_PAUSE_S)

    # Receiving

    def _pump(self, head: Lane) -> None:
        """Receives from the broker of `head`, for all lanes on that connection, and builds rows."""
        connection = head.connection
        assert connection is not None
        self._grant(head)
        # Of this connection alone: messages of other brokers wait in their sockets, as many as permits were granted
        # for.
        connection.expect_bytes(BUFFER_BYTES)
        # Collect a chunk, but never delay rows for it: after the first message, `QUIET_S` of silence end the wait.
        wait = IDLE_CHECK_S
        while connection.message_bytes < CHUNK_BYTES and connection.poll(wait):
            if connection.message_bytes:
                wait = QUIET_S
            if head.state is LaneState.OPENING:
                self._notice_answers(connection)
                self._grant(head)
        self._notice_answers(connection)
        self._notice_closed(connection)
        if connection.message_bytes:
            messages = connection.take_messages()
            self._receive(messages)
            connection.reuse_buffer(messages)
        elif time.monotonic() - head.last_heard > IDLE_CHECK_S and head.state is LaneState.READING:
            self._check_silence(head)

    def _notice_answers(self, connection: BrokerConnection) -> None:
        for lane in list(self._active):
            if lane.connection is connection and lane.state is LaneState.OPENING:
                try:
                    answer = connection.answer(lane.request_id, f"reading {lane.range.topic}")
                except BrokerRefused as refused:
                    self._subscribe_refused(lane, refused)
                    continue
                if answer is not None:
                    lane.state = LaneState.READING
                    lane.last_heard = time.monotonic()
                    self._grant(lane)

    def _subscribe_refused(self, lane: Lane, refused: BrokerRefused) -> None:
        if refused.code in NOT_FOUND:
            self._lost(lane, "topic deleted", "")
            self._finish(lane)
        elif refused.code in TRY_AGAIN and lane.may_retry(self._cluster.settings.timeout_s):
            time.sleep(LOST_PAUSE_S)
            self._open([lane])
        else:
            raise refused

    def _notice_closed(self, connection: BrokerConnection) -> None:
        """Subscribes lanes again whose consumers the broker closed, because their topics move."""
        closed, connection.closed_consumers = connection.closed_consumers, set()
        lanes = [self._by_consumer.pop(number, None) for number in closed]
        self._open([lane for lane in lanes if lane is not None and lane.state is not LaneState.DONE])

    def _grant(self, lane: Lane) -> None:
        if lane.state is LaneState.READING and lane.connection is not None:
            permits = lane.permits_due(self._bytes_per_message)
            if permits:
                lane.connection.send(requests.flow(lane.consumer_id, permits))

    def _receive(self, messages: Messages) -> None:
        arrived = cut_entries(messages)
        lanes = self._lanes_of(arrived)
        # Of `arrived`, because permits are used up by every message that was sent, also by those outside of the
        # range.
        counts = arrived.message_counts()
        self._bytes_per_message = _sizes(arrived) / max(1, int(counts.sum()))
        for lane in lanes:
            lane.heard(int(counts[lane.rows_of(arrived)].sum()))
        # Positions are taken from `arrived`, rows from `entries`: joining drops the frames of chunks but the last.
        opened = self._decryption.decrypt(messages, arrived)
        plain = arrived if opened is messages else cut_entries(opened)
        whole = self._chunks.join(opened, plain, partial(self._look_back, plain))
        entries = plain if whole is opened else cut_entries(whole)
        cuts = Cuts(np.full(len(entries), -1, np.int64), np.full(len(entries), WHOLE, np.int64))
        chosen = [self._keep(lane, entries, np.flatnonzero(lane.rows_of(entries)), cuts) for lane in lanes]
        if chosen:
            rows = self._decryption.readable(whole, entries, np.sort(np.concatenate(chosen)))
            self._make_rows(entries, rows, cuts, whole.buffer)
        # Move on only after the rows are built: if anything above raises BrokerLost, the same entries are read again.
        for lane in lanes:
            rows = np.flatnonzero(lane.rows_of(arrived))
            if lane.state is not LaneState.DONE:
                lane.move_to(
                    MessagePosition(int(arrived.ledger_ids[rows[-1]]), int(arrived.entry_ids[rows[-1]]))
                )
            self._close_if_done(lane)

    def _look_back(self, arrived: EntryTable, row: int, uuid: bytes) -> Parts | None:
        """Reads the chunks before the range of a message whose last chunk is in it; None for one of a closed consumer."""
        lane = self._by_consumer.get(int(arrived.consumer_ids[row]))
        if lane is None:
            return None
        last = int(arrived.ledger_ids[row]), int(arrived.entry_ids[row])
        run = self._cluster.run_before(lane.range.topic, last, LOOK_BACK_ENTRIES, self._settings.subscription)
        parts: Parts = {}
        for messages, entries in run:
            opened = self._decryption.decrypt(messages, entries)
            parts |= parts_of(opened, entries if opened is messages else cut_entries(opened), uuid)
        return parts

    def _lanes_of(self, entries: EntryTable) -> list[Lane]:
        found = (self._by_consumer.get(number) for number in np.unique(entries.consumer_ids).tolist())
        return [lane for lane in found if lane is not None]

    def _keep(self, lane: Lane, entries: EntryTable, rows: Ints, cuts: Cuts) -> Ints:
        """Returns the lane's entries that are in its range and were not read before.

        Also writes into `cuts` which messages to keep of the first and the last entry, if the range ends inside a batch.
        """
        if not rows.size or lane.state is LaneState.DONE:
            return rows[:0]
        ledgers, ids = entries.ledger_ids[rows], entries.entry_ids[rows]
        self._check_jumps(lane, ledgers, ids)
        start, end = lane.reached, lane.range.end
        new = (ledgers > start.ledger) | (
            (ledgers == start.ledger) & (ids >= start.entry + (start.batch == WHOLE))
        )
        inside = new & ((ledgers < end.ledger) | ((ledgers == end.ledger) & (ids <= end.entry)))
        first = rows[(ledgers == start.ledger) & (ids == start.entry)]
        # A range that begins inside a batch is sent the whole entry again.
        cuts.after[first] = start.batch
        cuts.last[rows[(ledgers == end.ledger) & (ids == end.entry)]] = end.batch
        times = entries.metadata.numbers(EntryField.PUBLISH_TIME)[rows]
        inside &= (times >= lane.range.from_ms) & (times <= lane.range.to_ms)
        kept: Ints = rows[inside]
        return kept

    def _make_rows(self, entries: EntryTable, rows: Ints, cuts: Cuts, buffer: bytearray) -> None:
        lane_numbers = np.zeros(len(entries), np.int64)
        for consumer_id, lane in self._by_consumer.items():
            lane_numbers[entries.consumer_ids == consumer_id] = lane.number
        origin = Origin(self._names, self._partitions, lane_numbers)
        batch, entry_rows = self._builder.build(entries, rows, cuts, origin, buffer)
        if batch is None:
            return
        of_rows = lane_numbers[entry_rows]
        if (of_rows == of_rows[0]).all():
            self._lanes[of_rows[0]].add_rows(batch)
            return
        # Rows of several lanes arrived together: sort them by lane, stable, and give each lane its slice.
        order = np.argsort(of_rows, kind="stable")
        grouped = batch.take(numbers(order))
        found, firsts, counts = np.unique(of_rows[order], return_index=True, return_counts=True)
        for number, first, count in zip(found.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            self._lanes[number].add_rows(grouped.slice(first, count))

    def _close_if_done(self, lane: Lane) -> None:
        if lane.has_reached_end and lane.state is not LaneState.DONE:
            connection = lane.connection
            assert connection is not None
            # Messages that are still on their way to this consumer are then ignored: no lane has its id.
            self._by_consumer.pop(lane.consumer_id, None)
            self._finish(lane)
            connection.send(requests.close_consumer(connection.next_id(), lane.consumer_id))

    # Gaps

    def _check_silence(self, lane: Lane) -> None:
        """Handles a silent broker: the rest of the range is gone (data loss), or it is only slow (wait)."""
        connection = lane.connection
        assert connection is not None
        newest = ask_last(connection, [lane.consumer_id])[0]
        if newest < lane.range.end._replace(batch=WHOLE):
            self._lost(lane, "ledger trimmed", str(newest) if newest.entry >= 0 else "")
            self._finish(lane)
        elif time.monotonic() - lane.last_heard > self._settings.poll_timeout_s:
            raise PulsarSourceError(
                f"{lane.range.topic}: no message came after {lane.reached} for {self._settings.poll_timeout_s:g} s, "
                f"but the broker has messages up to {newest}; raise pollTimeoutMs if it is slow"
            )

    def _check_jumps(self, lane: Lane, ledgers: Ints, ids: Ints) -> None:
        """Reports a data loss where the ledger before a change of ledgers was trimmed before it was read.

        Entry ids show a gap within a ledger, never between two: the next ledger begins at 0 wherever the one before
        ended. So at each change the last entry read is requested again; if it is still there, so was its whole ledger.
        A range whose ledgers a cursor retained is not checked.
        """
        if lane.range.retained:
            return
        previous = lane.reached
        for row in np.flatnonzero(np.diff(ledgers, prepend=previous.ledger)).tolist():
            found = MessagePosition(int(ledgers[row]), int(ids[row]))
            last = previous if row == 0 else MessagePosition(int(ledgers[row - 1]), int(ids[row - 1]))
            # An entry that was sent again before the position (`found` <= `last`) is no gap.
            if last.ledger >= 0 and last < found and not self._is_there(lane.range.topic, last):
                self._lost(lane, "ledger trimmed", str(found))

    def _is_there(self, topic: str, position: MessagePosition) -> bool:
        """Returns True if the entry at `position` can still be read; its ledger then exists up to its end."""
        first = self._cluster.first_entry(
            topic, (position.ledger, max(position.entry, 0)), self._settings.subscription
        )
        if position.entry < 0:
            return first is not None and first.ledger == position.ledger
        return first is not None and (first.ledger, first.entry) == (position.ledger, position.entry)

    def _finish(self, lane: Lane) -> None:
        lane.finish()
        self._chunks.forget(lane.consumer_id)
        self._active.remove(lane)

    def _lost(self, lane: Lane, reason: str, found: str) -> None:
        wanted = "the beginning" if lane.reached.ledger < 0 else str(lane.reached)
        loss = DataLoss(lane.range.topic, reason, wanted, found)
        if self._settings.fail_on_data_loss:
            raise loss
        log.warning("%s", loss)


def _sizes(entries: EntryTable) -> int:
    return int((entries.payload_ends - entries.payload_starts).sum())


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
