"""A task's way to the brokers: producers are opened as topics turn up, entries go out, receipts come in."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from protocol import requests
from protocol.pulsar_api_pb2 import BaseCommand, Schema, ServerError
from pyspark_pulsar.client.cluster import TRY_AGAIN, Cluster
from pyspark_pulsar.client.connection import Connection
from pyspark_pulsar.errors import BrokerLost, BrokerRefused, PulsarSourceError
from pyspark_pulsar.writing.message_rows import MessageRows
from pyspark_pulsar.writing.topic_producer import Entry, EntrySettings, TopicProducer

log = logging.getLogger("pyspark_pulsar")

PENDING_BYTES_MAX: Final = 8 << 20
"""Sent and not confirmed, over all topics of a task."""
PAUSE_S: Final = 0.2
BUSY = frozenset({"ProducerBusy", "ProducerFenced"})
"""The task that ran before is still connected; its process ends soon."""
DEDUPLICATION_UNDECIDED = "PersistenceError"


class PublishSettings(NamedTuple):
    entries: EntrySettings
    exactly_once: bool
    timeout_s: float
    """For how long one entry may be tried."""


class Publisher:
    def __init__(
        self, cluster: Cluster, producer_name: str, settings: PublishSettings, schema: Schema | None
    ) -> None:
        self._cluster = cluster
        self._name = producer_name
        self._settings = settings
        self._schema = schema
        self._producers: dict[str, TopicProducer] = {}
        self._connections: dict[str, Connection] = {}
        self._pending_bytes = 0

    def publish(self, topic: str, rows: MessageRows) -> None:
        """Returns when the rows are on their way, as far as they fill entries."""
        producer = self._producers.get(topic) or self._add_producer(topic)
        self._send_all(producer, producer.add(rows))

    def finish(self) -> None:
        """Returns when the broker has stored everything."""
        for producer in self._producers.values():
            self._send_all(producer, producer.rest())
        self._wait_until(0)
        for topic, producer in self._producers.items():
            connection = self._connections[topic]
            request_id = connection.next_id()
            frame = requests.close_producer(request_id, producer.producer_id)
            connection.ask(request_id, frame, f"closing the producer of {topic}")

    # Producers

    def _add_producer(self, topic: str) -> TopicProducer:
        producer = TopicProducer(topic, self._name, self._settings.entries, self._schema)
        self._again_until_open(producer)
        producer.is_new = producer.stored < 0
        self._producers[topic] = producer
        return producer

    def _again_until_open(self, producer: TopicProducer) -> None:
        deadline = time.monotonic() + self._settings.timeout_s
        while True:
            try:
                self._open(producer)
                return
            except (BrokerLost, BrokerRefused) as error:
                if isinstance(error, BrokerRefused) and error.code not in TRY_AGAIN | BUSY:
                    raise
                if time.monotonic() > deadline:
                    raise
                if isinstance(error, BrokerLost):
                    self._cluster.forget_lost()
                time.sleep(PAUSE_S)

    def _open(self, producer: TopicProducer) -> None:
        owner = self._cluster.owners([producer.topic])[0]
        connection = self._cluster.connection(owner)
        request_id, producer_id = connection.next_id(), connection.next_id()
        frame = requests.producer(
            request_id, producer_id, producer.topic, producer.name, schema=producer.schema, metadata={}
        )
        answer = connection.ask(request_id, frame, f"opening a producer on {producer.topic}").producer_success
        producer.opened(producer_id, answer.last_sequence_id, answer.schema_version)
        self._connections[producer.topic] = connection

    def _prove(self, producer: TopicProducer) -> None:
        """Open again and see whether the broker remembers what it has just stored."""
        self._wait_until(0)
        connection = self._connections[producer.topic]
        request_id = connection.next_id()
        frame = requests.close_producer(request_id, producer.producer_id)
        connection.ask(request_id, frame, f"closing the producer of {producer.topic}")
        self._again_until_open(producer)
        if not producer.is_proven:
            raise PulsarSourceError(
                f"the broker does not deduplicate {producer.topic}, so nothing can be written exactly once: set "
                "brokerDeduplicationEnabled=true (or deduplication for the namespace), or write with "
                'option("deliveryGuarantee", "at-least-once")'
            )

    # Entries

    def _send_all(self, producer: TopicProducer, entries: Iterator[Entry]) -> None:
        for entry in entries:
            self._check_size(producer, entry)
            producer.pending.append(entry)
            self._pending_bytes += len(entry.body)
            self._send(producer, entry)
            if self._settings.exactly_once and producer.is_new and not producer.is_proven:
                self._prove(producer)
            self._wait_until(PENDING_BYTES_MAX)

    def _check_size(self, producer: TopicProducer, entry: Entry) -> None:
        limit = self._connections[producer.topic].message_bytes_max
        if len(entry.body) > limit:
            raise PulsarSourceError(
                f"{producer.topic}: {entry.messages} rows make an entry of {len(entry.body)} bytes, the broker takes "
                f"{limit}; split the value, or raise maxMessageSize of the broker"
            )

    def _send(self, producer: TopicProducer, entry: Entry) -> None:
        try:
            self._connections[producer.topic].send(producer.frame(entry))
            self._take_receipts(0.0)
        except BrokerLost as error:
            self._recover(error)

    def _wait_until(self, bytes_max: int) -> None:
        deadline = time.monotonic() + self._settings.timeout_s
        while self._pending_bytes > bytes_max:
            try:
                if self._take_receipts(min(1.0, self._settings.timeout_s)):
                    deadline = time.monotonic() + self._settings.timeout_s
                elif time.monotonic() > deadline:
                    raise PulsarSourceError(
                        f"no receipt within {self._settings.timeout_s:g} s for {self._pending_bytes} bytes; "
                        "raise pulsar.producer.sendTimeoutMs if the broker is slow"
                    )
            except BrokerLost as error:
                self._recover(error)

    def _take_receipts(self, timeout_s: float) -> bool:
        """Whether any receipt came. Does not wait longer than for the first connection that is waited for."""
        came = False
        for connection in dict.fromkeys(self._connections.values()):
            waits = any(
                producer.pending and self._connections[producer.topic] is connection
                for producer in self._producers.values()
            )
            if waits or not self._producers:
                connection.poll(timeout_s or 0.000001)
            receipts, connection.receipts = connection.receipts, []
            for receipt in receipts:
                self._receipt(connection, receipt)
                came = True
            if connection.closed_producers:
                connection.closed_producers.clear()
                raise BrokerLost(f"{connection} closed a producer")
        return came

    def _receipt(self, connection: Connection, receipt: BaseCommand) -> None:
        failed = receipt.type == BaseCommand.SEND_ERROR
        answer = receipt.send_error if failed else receipt.send_receipt
        for producer in self._producers.values():
            same = self._connections[producer.topic] is connection
            if same and producer.producer_id == answer.producer_id:
                break
        else:
            return
        if failed:
            name = ServerError.Name(receipt.send_error.error)
            if name in TRY_AGAIN or name == DEDUPLICATION_UNDECIDED:
                raise BrokerLost(f"{producer.topic}: the broker says {name}: {receipt.send_error.message}")
            raise BrokerRefused(f"writing to {producer.topic}", name, receipt.send_error.message)
        before = producer.pending[0] if producer.pending else None
        producer.confirmed(answer.sequence_id)
        if before is not None:
            self._pending_bytes -= len(before.body)

    def _recover(self, error: BrokerLost) -> None:
        """Open all producers again and send what they have not stored, in order."""
        log.warning("%s; connecting again", error)
        deadline = time.monotonic() + self._settings.timeout_s
        while True:
            self._cluster.forget_lost()
            try:
                for producer in self._producers.values():
                    self._again_until_open(producer)
                    for entry in producer.pending:
                        self._connections[producer.topic].send(producer.frame(entry))
                break
            except BrokerLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_S)
        self._pending_bytes = sum(
            len(one.body) for producer in self._producers.values() for one in producer.pending
        )
