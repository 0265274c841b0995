"""What a stream's driver knows of its topics from batch to batch: which there are, and where each one ends.

One consumer per topic stays open, of a durable subscription whose cursor keeps the topic's ledgers from being
trimmed before the stream has read them. Ends are asked for in one go over all topics. Where topics are so many that
a round takes longer than `ROUND_S`, those that moved last are asked first and the others take turns.
"""

from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from protocol import requests
from pyspark_pulsar.client.cluster import NOT_FOUND, Cluster, signed
from pyspark_pulsar.client.connection import Connection
from pyspark_pulsar.cutting.protobuf_columns import Flags, Ints
from pyspark_pulsar.errors import BrokerLost, BrokerRefused
from pyspark_pulsar.planning.offsets import Offsets
from pyspark_pulsar.planning.position import WHOLE, Position

log = logging.getLogger("pyspark_pulsar")

ROUND_S: Final = 0.4
SLICE: Final = 1024
"""Topics asked at a time."""


class TopicWatch:
    """Topics are rows, in order of their names, until `follow` gives new ones."""

    def __init__(self, cluster: Cluster, subscription: str) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self.topics: tuple[str, ...] = ()
        self.ledgers: Ints = np.zeros(0, np.int64)
        self.entries: Ints = np.zeros(0, np.int64)
        self.mark_ledgers: Ints = np.zeros(0, np.int64)
        self.mark_entries: Ints = np.zeros(0, np.int64)
        """How far the subscription's cursor is: nothing behind it has been trimmed."""
        self._consumers: dict[str, tuple[Connection, int]] = {}
        self._moved: Ints = np.zeros(0, np.int64)
        self._turn = 0
        self._not_kept: dict[str, Position] = {}
        """Where the stream stood when nothing had kept what comes behind."""

    def follow(self, topics: tuple[str, ...]) -> None:
        """Watch these topics. Positions of those that were watched before are kept."""
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
        self.mark_ledgers, self.mark_entries = carried(self.mark_ledgers), carried(self.mark_entries)
        self.topics = topics
        self._moved = np.flatnonzero(~known)
        wanted = set(topics)
        self._consumers = {topic: one for topic, one in self._consumers.items() if topic in wanted}

    def refresh(self, *, all_topics: bool = False) -> list[str]:
        """Ask where topics end: all of them, or as many as a round's time allows. Answers which are gone."""
        order = np.concatenate((self._moved, self._others()))
        gone: list[str] = []
        moved: list[Ints] = []
        started = time.monotonic()
        done = 0
        while done < len(order):
            rows = order[done : done + SLICE]
            moved.append(self._ask_again(rows, gone))
            done += len(rows)
            if not all_topics and time.monotonic() - started > ROUND_S and done >= len(self._moved):
                break
        self._turn += max(0, done - len(self._moved))
        self._moved = np.concatenate(moved) if moved else self._moved[:0]
        return gone

    def _others(self) -> Ints:
        others = np.setdiff1d(np.arange(len(self.topics)), self._moved, assume_unique=True)
        return np.roll(others, -(self._turn % max(1, len(others))))

    def _ask_again(self, rows: Ints, gone: list[str]) -> Ints:
        def ask() -> Ints:
            try:
                return self._ask(rows, gone)
            except (BrokerLost, BrokerRefused):
                self._consumers.clear()
                raise

        return self._cluster.patiently(ask)

    def _ask(self, rows: Ints, gone: list[str]) -> Ints:
        topics = [self.topics[row] for row in rows.tolist()]
        gone += self._subscribe([topic for topic in topics if topic not in self._consumers])
        by_connection: dict[int, list[tuple[int, Connection, int]]] = {}
        for row, topic in zip(rows.tolist(), topics, strict=True):
            if topic in self._consumers:
                connection, consumer_id = self._consumers[topic]
                by_connection.setdefault(id(connection), []).append((row, connection, consumer_id))
        moved: list[int] = []
        for asked in by_connection.values():
            moved += self._ask_one_broker(asked)
        return np.array(moved, np.int64)

    def _ask_one_broker(self, asked: Sequence[tuple[int, Connection, int]]) -> list[int]:
        connection = asked[0][1]
        if connection.closed_consumers:
            # Topics moved to another broker: all is asked again, with new consumers.
            connection.closed_consumers.clear()
            raise BrokerLost(f"{connection} gave topics away")
        answers = connection.ask_all(
            (
                request_id,
                requests.last_message_id(request_id, consumer_id),
                f"asking for the end of {self.topics[row]}",
            )
            for row, _, consumer_id in asked
            for request_id in (connection.next_id(),)
        )
        moved = []
        for (row, _, _), answer in zip(asked, answers, strict=True):
            reply = answer.getLastMessageIdResponse
            last, mark = reply.last_message_id, reply.consumer_mark_delete_position
            ledger, entry = signed(last.ledgerId), signed(last.entryId)
            if entry >= 0 and (ledger, entry) != (self.ledgers[row], self.entries[row]):
                self.ledgers[row], self.entries[row] = ledger, entry
                moved.append(row)
            if reply.HasField("consumer_mark_delete_position"):
                self.mark_ledgers[row], self.mark_entries[row] = signed(mark.ledgerId), signed(mark.entryId)
        return moved

    def _subscribe(self, topics: Sequence[str]) -> list[str]:
        """Open consumers; answers the topics that do not exist."""
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
        self, connection: Connection, topics: Sequence[str], *, earliest: bool
    ) -> dict[str, int]:
        """Consumer ids of the topics that exist. `earliest`: where a subscription begins that is new."""
        consumer_ids = [connection.next_id() for _ in topics]
        answers = connection.try_all(
            (
                request_id,
                requests.subscribe_durable(
                    request_id, consumer_id, topic, self._subscription, earliest=earliest
                ),
                f"subscribing {self._subscription} to {topic}",
            )
            for topic, consumer_id in zip(topics, consumer_ids, strict=True)
            for request_id in (connection.next_id(),)
        )
        opened = {}
        for topic, consumer_id, (_, refused) in zip(topics, consumer_ids, answers, strict=True):
            if refused is None:
                opened[topic] = consumer_id
            elif refused.code not in NOT_FOUND:
                raise refused
        return opened

    def hold(self, offsets: Offsets) -> None:
        """Before the first round: have the subscription keep what is behind these positions.

        One that exists has done so all the time. A new one is told to begin at the end, so that its cursor shows
        that it is new, and is then set back; what was trimmed before that nobody knows.
        """
        rows = [row for row in range(len(offsets)) if offsets.ledgers[row] >= 0]
        topics = [offsets.topics[row] for row in rows]
        for owner, names in self._cluster.by_owner(topics).items():
            connection = self._cluster.new_connection(owner)
            try:
                self._hold_one_broker(connection, names, offsets)
            finally:
                connection.close()

    def _hold_one_broker(self, connection: Connection, names: Sequence[str], offsets: Offsets) -> None:
        rows = {topic: row for row, topic in enumerate(offsets.topics)}
        opened = self._open_consumers(connection, names, earliest=False)
        answers = connection.ask_all(
            (request_id, requests.last_message_id(request_id, consumer_id), f"asking for the end of {topic}")
            for topic, consumer_id in opened.items()
            for request_id in (connection.next_id(),)
        )
        back = []
        for (topic, consumer_id), answer in zip(opened.items(), answers, strict=True):
            mark = answer.getLastMessageIdResponse.consumer_mark_delete_position
            position = offsets.position(rows[topic])
            if signed(mark.entryId) >= 0 and Position(signed(mark.ledgerId), signed(mark.entryId)) > position:
                self._not_kept[topic] = position
                request_id = connection.next_id()
                frame = requests.seek(request_id, consumer_id, position.first_entry())
                back.append((request_id, frame, f"setting {self._subscription} back on {topic}"))
        connection.ask_all(back)

    def retained(self, begin: Offsets, rows: Ints) -> Flags:
        """Of the topics `rows` of an offset: whether the cursor has kept everything behind it.

        A cursor in front of a ledger's first entry got there because the ledger before was trimmed when all of it
        had been read.
        """
        if begin.topics != self.topics:
            places = {topic: row for row, topic in enumerate(self.topics)}
            mine = np.array([places.get(begin.topics[row], -1) for row in rows.tolist()], np.int64)
        else:
            mine = rows
        ledgers, entries = self.mark_ledgers[mine], self.mark_entries[mine]
        behind = (ledgers < begin.ledgers[rows]) | (
            (ledgers == begin.ledgers[rows]) & (entries <= begin.entries[rows])
        )
        kept: Flags = (mine >= 0) & (ledgers >= 0) & ((entries < 0) | behind)
        for topic, position in self._not_kept.items():
            at = np.flatnonzero(rows == self._row_of(begin, topic))
            if at.size and begin.position(int(rows[at[0]])) == position:
                kept[at] = False
        return kept

    def _row_of(self, offsets: Offsets, topic: str) -> int:
        row = bisect.bisect_left(offsets.topics, topic)
        return row if row < len(offsets) and offsets.topics[row] == topic else -1

    def acknowledge(self, offsets: Offsets) -> None:
        """Move the cursors to where the stream has read."""
        aligned = offsets.aligned_to(self.topics)
        partial = aligned.batches != WHOLE
        ledgers, entries = aligned.ledgers, aligned.entries - partial
        ahead = (ledgers > self.mark_ledgers) | (
            (ledgers == self.mark_ledgers) & (entries > self.mark_entries)
        )
        wanted: dict[int, tuple[Connection, list[tuple[int, bytes, str]]]] = {}
        for row in np.flatnonzero(ahead & (ledgers >= 0) & (entries >= 0)).tolist():
            topic = self.topics[row]
            if topic in self._consumers:
                connection, consumer_id = self._consumers[topic]
                request_id = connection.next_id()
                position = int(ledgers[row]), int(entries[row])
                frame = requests.acknowledge_up_to(request_id, consumer_id, position)
                known = wanted.setdefault(id(connection), (connection, []))
                known[1].append((request_id, frame, f"acknowledging {topic}"))
        try:
            for connection, frames in wanted.values():
                connection.ask_all(frames)
        except BrokerLost as error:
            log.warning("%s; the positions are acknowledged with the next batch", error)
            self._consumers.clear()
            self._cluster.forget_lost()
