"""Keeps the ends of a stream's topics, and its cursors on them, on the driver from batch to batch.

One consumer per topic stays open, of a durable subscription. The consumer is sent no messages (it grants no permits);
it serves two purposes. Its cursor keeps the topic's ledgers from being trimmed before the stream has read them, and
GET_LAST_MESSAGE_ID, which returns the end of the topic and the cursor's position, needs a consumer.

`refresh` requests the ends of all topics together. With so many topics that a round takes longer than `ROUND_S`,
topics that moved in the last round come first and the others take turns, so that a micro-batch never waits for all.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from protocol import requests
from pyspark_pulsar.client.cluster import NOT_FOUND, Cluster, signed
from pyspark_pulsar.client.connection import BrokerConnection, Request
from pyspark_pulsar.cutting.protobuf_columns import Flags, Ints
from pyspark_pulsar.errors import BrokerLost, BrokerRefused
from pyspark_pulsar.planning.offsets import Offsets
from pyspark_pulsar.position import WHOLE, MessagePosition

log = logging.getLogger("pyspark_pulsar")

ROUND_S: Final = 0.4
"""Seconds after which a round of `refresh` ends, once the topics that moved last are done."""
_SLICE: Final = 1024
"""Topics per group of requests; the time is looked at between groups."""


class TopicWatch:
    """Ends of topics and cursors of one subscription, as columns with one element per topic.

    Lives on the driver as long as the query. All state can be lost: after a restart it is requested again.
    """

    def __init__(self, cluster: Cluster, subscription: str) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self.topics: tuple[str, ...] = ()
        """The topics of the columns below, sorted by name."""
        self.ledgers: Ints = np.zeros(0, np.int64)
        """Ledger of each topic's newest entry, -1 before the first refresh and for an empty topic."""
        self.entries: Ints = np.zeros(0, np.int64)
        """Each topic's newest entry, -1 like `ledgers`."""
        self._mark_ledgers: Ints = np.zeros(0, np.int64)
        self._mark_entries: Ints = np.zeros(0, np.int64)
        """Mark-delete position of the subscription's cursor; nothing after it has been trimmed."""
        self._consumers: dict[str, tuple[BrokerConnection, int]] = {}
        self._moved: Ints = np.zeros(0, np.int64)
        self._turn = 0
        self._not_retained: dict[str, MessagePosition] = {}
        """The stream's positions on topics whose subscription was new at the start: later ledgers may be trimmed."""

    def follow(self, topics: tuple[str, ...]) -> None:
        """Replaces the list of topics; ends and cursors of topics in both lists are kept."""
        if topics == self.topics:
            return
        rows = {topic: row for row, topic in enumerate(self.topics)}
        taken = np.array([rows.get(topic, -1) for topic in topics], np.int64)
        known = taken >= 0

        def carried(column: Ints) -> Ints:
            fresh = np.full(len(topics), -1, np.int64)
            fresh[known] = column[taken[known]]
            return fresh

        self.ledgers, self.entries = carried(self.ledgers), carried(self.entries)
        self._mark_ledgers, self._mark_entries = carried(self._mark_ledgers), carried(self._mark_entries)
        self.topics = topics
        self._moved = np.flatnonzero(~known)
        wanted = set(topics)
        self._consumers = {topic: one for topic, one in self._consumers.items() if topic in wanted}

    def refresh(self, *, all_topics: bool = False) -> list[str]:
        """Requests the ends of topics, of all or of as many as `ROUND_S` allows.

        Returns the topics that do not exist any more. Retries lost brokers for the cluster's timeout.
        """
        order = np.concatenate((self._moved, self._others()))
        gone: list[str] = []
        moved: list[Ints] = []
        started = time.monotonic()
        done = 0
        while done < len(order):
            rows = order[done : done + _SLICE]
            moved.append(self._ask_retrying(rows, gone))
            done += len(rows)
            if not all_topics and time.monotonic() - started > ROUND_S and done >= len(self._moved):
                break
        self._turn += max(0, done - len(self._moved))
        self._moved = np.concatenate(moved) if moved else self._moved[:0]
        return gone

    def _others(self) -> Ints:
        others = np.setdiff1d(np.arange(len(self.topics)), self._moved, assume_unique=True)
        return np.roll(others, -(self._turn % max(1, len(others))))

    def _ask_retrying(self, rows: Ints, gone: list[str]) -> Ints:
        def ask() -> Ints:
            try:
                return self._ask(rows, gone)
            except (BrokerLost, BrokerRefused):
                # `retrying` closes all connections before the next attempt, and their consumers with them.
                self._consumers.clear()
                raise

        return self._cluster.retrying(ask)

    def _ask(self, rows: Ints, gone: list[str]) -> Ints:
        topics = [self.topics[row] for row in rows.tolist()]
        gone += self._subscribe([topic for topic in topics if topic not in self._consumers])
        by_connection: dict[int, list[tuple[int, BrokerConnection, int]]] = {}
        for row, topic in zip(rows.tolist(), topics, strict=True):
            if topic in self._consumers:
                connection, consumer_id = self._consumers[topic]
                by_connection.setdefault(id(connection), []).append((row, connection, consumer_id))
        moved: list[int] = []
        for asked in by_connection.values():
            moved += self._ask_one_broker(asked)
        return np.array(moved, np.int64)

    def _ask_one_broker(self, asked: Sequence[tuple[int, BrokerConnection, int]]) -> list[int]:
        connection = asked[0][1]
        if connection.closed_consumers:
            # Topics move to another broker. Treat it like a lost one: look all topics up again, open new consumers.
            connection.closed_consumers.clear()
            raise BrokerLost(f"{connection} closed consumers, because their topics move to another broker")
        answers = connection.ask_all(
            connection.request(
                f"asking for the end of {self.topics[row]}", requests.last_message_id, consumer_id
            )
            for row, _, consumer_id in asked
        )
        moved = []
        for (row, _, _), answer in zip(asked, answers, strict=True):
            reply = answer.getLastMessageIdResponse
            last, mark = reply.last_message_id, reply.consumer_mark_delete_position
            ledger, entry = signed(last.ledgerId), signed(last.entryId)
            # The entry is -1 for an empty topic, also if only its last ledger is empty: keep the end known before.
            if entry >= 0 and (ledger, entry) != (self.ledgers[row], self.entries[row]):
                self.ledgers[row], self.entries[row] = ledger, entry
                moved.append(row)
            if reply.HasField("consumer_mark_delete_position"):
                self._mark_ledgers[row] = signed(mark.ledgerId)
                self._mark_entries[row] = signed(mark.entryId)
        return moved

    def _subscribe(self, topics: Sequence[str]) -> list[str]:
        """Opens consumers; returns the topics that do not exist."""
        if not topics:
            return []
        gone: list[str] = []
        for owner, names in self._cluster.by_owner(topics).items():
            connection = self._cluster.connection(owner)
            opened = self._open_consumers(connection, names, earliest=True)
            self._consumers |= {topic: (connection, consumer_id) for topic, consumer_id in opened.items()}
            gone += [topic for topic in names if topic not in opened]
        return gone

    def _open_consumers(
        self, connection: BrokerConnection, topics: Sequence[str], *, earliest: bool
    ) -> dict[str, int]:
        """Returns the consumer ids of the topics that exist.

        `earliest` puts the cursor of a new subscription before the first entry, otherwise after the last one.
        """
        consumer_ids = [connection.next_id() for _ in topics]
        answers = connection.try_all(
            connection.request(
                f"subscribing {self._subscription} to {topic}",
                requests.subscribe_durable,
                *(consumer_id, topic, self._subscription),
                earliest=earliest,
            )
            for topic, consumer_id in zip(topics, consumer_ids, strict=True)
        )
        opened = {}
        for topic, consumer_id, (_, refused) in zip(topics, consumer_ids, answers, strict=True):
            if refused is None:
                opened[topic] = consumer_id
            elif refused.code not in NOT_FOUND:
                raise refused
        return opened

    def retain_from(self, offsets: Offsets) -> None:
        """Makes the subscription's cursors retain everything after these positions; called once, before `refresh`.

        A subscription that exists has retained it all the time. A new one is created at the end of the topic, so that
        a cursor past the stream's position shows that it is new, and is then set back by SEEK. Ledgers may have been
        trimmed before it existed, so tasks check those topics for gaps (`retained` is False).
        """
        rows = [row for row in range(len(offsets)) if offsets.ledgers[row] >= 0]
        topics = [offsets.topics[row] for row in rows]
        for owner, names in self._cluster.by_owner(topics).items():
            with contextlib.closing(self._cluster.new_connection(owner)) as connection:
                self._retain_on_broker(connection, names, offsets)

    def _retain_on_broker(self, connection: BrokerConnection, names: Sequence[str], offsets: Offsets) -> None:
        rows = {topic: row for row, topic in enumerate(offsets.topics)}
        opened = self._open_consumers(connection, names, earliest=False)
        answers = connection.ask_all(
            connection.request(f"asking for the end of {topic}", requests.last_message_id, consumer_id)
            for topic, consumer_id in opened.items()
        )
        seeks = []
        for (topic, consumer_id), answer in zip(opened.items(), answers, strict=True):
            mark = answer.getLastMessageIdResponse.consumer_mark_delete_position
            position = offsets.position(rows[topic])
            if (
                signed(mark.entryId) >= 0
                and MessagePosition(signed(mark.ledgerId), signed(mark.entryId)) > position
            ):
                self._not_retained[topic] = position
                doing = f"setting the cursor of {self._subscription} back on {topic}"
                seeks.append(connection.request(doing, requests.seek, consumer_id, position.first_entry()))
        connection.ask_all(seeks)

    def retained(self, begin: Offsets, rows: Ints) -> Flags:
        """Returns for the topics at `rows` of `begin` True if the cursor has retained everything after it.

        That is so while the cursor is not ahead of the stream. A cursor at entry -1 of a later ledger counts too: the
        broker moved it there when it trimmed the ledger before, which the stream had acknowledged as a whole.
        """
        if begin.topics != self.topics:
            places = {topic: row for row, topic in enumerate(self.topics)}
            mine = np.array([places.get(begin.topics[row], -1) for row in rows.tolist()], np.int64)
        else:
            mine = rows
        ledgers, entries = self._mark_ledgers[mine], self._mark_entries[mine]
        not_ahead = (ledgers < begin.ledgers[rows]) | (
            (ledgers == begin.ledgers[rows]) & (entries <= begin.entries[rows])
        )
        kept: Flags = (mine >= 0) & (ledgers >= 0) & ((entries < 0) | not_ahead)
        # Only the first batch after such a position is in doubt: from the next on, the cursor stood before it.
        for topic, position in self._not_retained.items():
            at = np.flatnonzero(rows == self._row_of(begin, topic))
            if at.size and begin.position(int(rows[at[0]])) == position:
                kept[at] = False
        return kept

    def _row_of(self, offsets: Offsets, topic: str) -> int:
        row = bisect.bisect_left(offsets.topics, topic)
        return row if row < len(offsets) and offsets.topics[row] == topic else -1

    def acknowledge(self, offsets: Offsets) -> None:
        """Moves the cursors up to `offsets`, after Spark has committed that batch.

        A lost broker is no error: the cursor then stays where it is until the next call and retains more than needed.
        """
        aligned = offsets.aligned_to(self.topics)
        # A position inside a batch acknowledges the entries before it; the entry itself must stay readable.
        partial = aligned.batches != WHOLE
        ledgers, entries = aligned.ledgers, aligned.entries - partial
        ahead = (ledgers > self._mark_ledgers) | (
            (ledgers == self._mark_ledgers) & (entries > self._mark_entries)
        )
        wanted: dict[int, tuple[BrokerConnection, list[Request]]] = {}
        for row in np.flatnonzero(ahead & (ledgers >= 0) & (entries >= 0)).tolist():
            topic = self.topics[row]
            if topic in self._consumers:
                connection, consumer_id = self._consumers[topic]
                known = wanted.setdefault(id(connection), (connection, []))
                doing, position = f"acknowledging {topic}", (int(ledgers[row]), int(entries[row]))
                known[1].append(connection.request(doing, requests.acknowledge_up_to, consumer_id, position))
        try:
            for connection, frames in wanted.values():
                connection.ask_all(frames)
        except BrokerLost as error:
            log.warning("%s; the positions are acknowledged with the next batch", error)
            self._consumers.clear()
            self._cluster.close()
