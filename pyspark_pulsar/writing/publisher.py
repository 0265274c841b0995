"""Sends a task's entries to the brokers: opens producers, sends, reads receipts, reconnects.

Invariants: at most `PENDING_BYTES_MAX` bytes have no receipt; a topic's entries are sent in order, and after a break all
of them that have no receipt are sent again in the same order. Before a new connection sends anything, the broker has
returned the highest sequence id it stored, so what is sent again is new to it, or is dropped by deduplication.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from protocol import requests
from protocol.pulsar_api_pb2 import BaseCommand, Schema, ServerError
from pyspark_pulsar.client.cluster import TRY_AGAIN, Cluster
from pyspark_pulsar.client.connection import BrokerConnection
from pyspark_pulsar.errors import BrokerLost, BrokerRefused, PulsarSourceError
from pyspark_pulsar.writing.access_check import BUSY
from pyspark_pulsar.writing.deduplication_probe import deduplicates
from pyspark_pulsar.writing.message_rows import MessageRows
from pyspark_pulsar.writing.topic_producer import EntrySettings, TopicProducer, UnsentEntry

log = logging.getLogger("pyspark_pulsar")

PENDING_BYTES_MAX: Final = 8 << 20
"""Bytes sent without a receipt, over all topics of a task; more waits."""
_PAUSE_S: Final = 0.2
_NO_WAIT_S: Final = 0.000_001
"""Polls without waiting; a socket timeout of 0 would mean non-blocking mode, with another exception."""
_DEDUPLICATION_UNDECIDED = "PersistenceError"
"""Code of SEND_ERROR while the broker cannot tell yet if an entry is a duplicate: send it again later."""


class PublishSettings(NamedTuple):
    """How a task publishes."""

    entries: EntrySettings
    """Borders and form of entries."""
    exactly_once: bool
    """True fails before the first entry if the broker does not deduplicate."""
    timeout_s: float
    """Limit for storing one entry, retries included."""


class Publisher:
    """The producers of one task, all under one name. Not thread-safe; the caller closes the cluster.

    Every method raises BrokerLost or PulsarSourceError after the timeout, and BrokerRefused at once.
    """

    def __init__(
        self, cluster: Cluster, producer_name: str, settings: PublishSettings, schema: Schema | None
    ) -> None:
        self._cluster = cluster
        self._name = producer_name
        self._settings = settings
        self._schema = schema
        self._producers: dict[str, TopicProducer] = {}
        self._connections: dict[str, BrokerConnection] = {}
        self._by_id: dict[tuple[int, int], TopicProducer] = {}
        """Producers by connection and producer id, as receipts name them."""
        self._pending_entries: dict[BrokerConnection, int] = {}
        self._pending_bytes = 0
        self._deduplicated: set[str] = set()
        """Namespaces for which the broker has shown that it deduplicates; it is set per namespace."""
        self._undecided: set[str] = set()
        """Namespaces in which the broker refused the probe, so that the first row has to show it."""

    def open(self, topics: Sequence[str]) -> None:
        """Opens producers for those of the topics that have none, all together."""
        new = [topic for topic in topics if topic not in self._producers]
        for topic in new:
            self._producers[topic] = TopicProducer(topic, self._name, self._settings.entries)
        self._again_until_open([self._producers[topic] for topic in new])
        for topic in new:
            # A known id shows that the broker deduplicates, so only new names need a probe.
            self._producers[topic].is_new = self._producers[topic].stored < 0
            if self._settings.exactly_once and self._producers[topic].is_new:
                self._probe_deduplication(topic)

    def publish(self, topic: str, rows: MessageRows) -> None:
        """Sends the entries that `rows` complete; the rest waits for more rows. The topic must be open.

        Blocks while too many bytes have no receipt.
        """
        producer = self._producers[topic]
        self._send_all(producer, producer.add(rows))

    def finish(self) -> None:
        """Sends the incomplete entries and returns when the broker has stored everything.

        The task's commit rests on it: Spark regards a task as done when it returns, and never runs it again.
        """
        for producer in self._producers.values():
            self._send_all(producer, producer.rest())
        self._wait_until(0)
        for connection, producers in self._by_connection().items():
            connection.ask_all(
                connection.request(f"closing {one.topic}", requests.close_producer, one.producer_id)
                for one in producers
            )

    def _by_connection(self) -> dict[BrokerConnection, list[TopicProducer]]:
        found: dict[BrokerConnection, list[TopicProducer]] = {}
        for topic, producer in self._producers.items():
            found.setdefault(self._connections[topic], []).append(producer)
        return found

    # Producers

    def _again_until_open(self, producers: Sequence[TopicProducer]) -> None:
        deadline = time.monotonic() + self._settings.timeout_s
        missing = list(producers)
        while missing:
            try:
                missing = self._open(missing)
            except BrokerLost:
                if time.monotonic() > deadline:
                    raise
                self._cluster.close()
                missing = list(producers)
            if missing:
                time.sleep(_PAUSE_S)

    def _open(self, producers: Sequence[TopicProducer]) -> list[TopicProducer]:
        """Opens producers once; returns those to retry later.

        BrokerRefused for a refusal that does not pass by itself, or has not passed for the timeout.
        """
        by_topic = {producer.topic: producer for producer in producers}
        later = []
        for owner, topics in self._cluster.by_owner(list(by_topic)).items():
            connection = self._cluster.connection(owner)
            ids = {topic: connection.next_id() for topic in topics}
            answers = connection.try_all(
                connection.request(
                    f"opening a producer on {topic}",
                    requests.producer,
                    *(ids[topic], topic, self._name),
                    schema=self._schema,
                    metadata={},
                )
                for topic in topics
            )
            for topic, (answer, refused) in zip(topics, answers, strict=True):
                producer = by_topic[topic]
                if refused is None:
                    success = answer.producer_success
                    producer.opened(ids[topic], success.last_sequence_id, success.schema_version)
                    self._connections[topic] = connection
                    self._by_id[id(connection), ids[topic]] = producer
                elif refused.code in TRY_AGAIN | BUSY and producer.may_retry(self._settings.timeout_s):
                    later.append(producer)
                else:
                    raise refused
        return later

    def _probe_deduplication(self, topic: str) -> None:
        """Raises PulsarSourceError if the broker does not deduplicate the topic's namespace, before a row is written."""
        namespace = _namespace(topic)
        if namespace in self._deduplicated or namespace in self._undecided:
            return
        found = deduplicates(self._cluster, namespace, self._name)
        if found is False:
            raise _not_deduplicated(topic)
        (self._undecided if found is None else self._deduplicated).add(namespace)

    def _check_deduplication(self, producer: TopicProducer) -> None:
        """Raises PulsarSourceError if the broker forgets the sequence id of the entry that it has just stored.

        Called after the first entry, of one row, where the broker refused the probe. The producer is opened again: a
        broker that deduplicates returns the highest id of its name, others return -1.
        """
        self._wait_until(0)
        connection = self._connections[producer.topic]
        doing = f"closing the producer of {producer.topic}"
        connection.ask(connection.request(doing, requests.close_producer, producer.producer_id))
        self._again_until_open([producer])
        if not producer.is_deduplicated:
            raise _not_deduplicated(producer.topic)
        self._deduplicated.add(_namespace(producer.topic))

    # Entries

    def _send_all(self, producer: TopicProducer, entries: Iterator[UnsentEntry]) -> None:
        for entry in entries:
            self._check_size(producer, entry)
            producer.pending.append(entry)
            self._pending_bytes += len(entry.body)
            self._send(producer, entry)
            unknown = self._settings.exactly_once and producer.is_new and not producer.is_deduplicated
            if unknown and _namespace(producer.topic) not in self._deduplicated:
                self._check_deduplication(producer)
            self._wait_until(PENDING_BYTES_MAX)

    def _check_size(self, producer: TopicProducer, entry: UnsentEntry) -> None:
        limit = self._connections[producer.topic].message_bytes_max
        if len(entry.body) > limit:
            raise PulsarSourceError(
                f"{producer.topic}: {entry.messages} rows make an entry of {len(entry.body)} bytes, the broker takes "
                f"{limit}; split the value, or raise maxMessageSize of the broker"
            )

    def _send(self, producer: TopicProducer, entry: UnsentEntry) -> None:
        connection = self._connections[producer.topic]
        self._pending_entries[connection] = self._pending_entries.get(connection, 0) + 1
        try:
            connection.send(producer.frame(entry))
            self._take_receipts(_NO_WAIT_S)
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
        """Reads receipts of all connections; returns True if any came. BrokerLost where a producer was closed."""
        came = False
        for connection, count in list(self._pending_entries.items()):
            if count:
                connection.poll(timeout_s)
            receipts, connection.receipts = connection.receipts, []
            for receipt in receipts:
                self._receipt(connection, receipt)
                came = True
            if connection.closed_producers:
                connection.closed_producers.clear()
                raise BrokerLost(f"{connection} closed a producer")
        return came

    def _receipt(self, connection: BrokerConnection, receipt: BaseCommand) -> None:
        failed = receipt.type == BaseCommand.SEND_ERROR
        answer = receipt.send_error if failed else receipt.send_receipt
        # A receipt for a producer that was closed in between; its entries are pending again under a new id.
        producer = self._by_id.get((id(connection), answer.producer_id))
        if producer is None:
            return
        if failed:
            name = ServerError.Name(receipt.send_error.error)
            # As after a break: reconnecting sends everything from this entry on again, in order.
            if name in TRY_AGAIN or name == _DEDUPLICATION_UNDECIDED:
                raise BrokerLost(f"{producer.topic}: the broker says {name}: {receipt.send_error.message}")
            raise BrokerRefused(f"writing to {producer.topic}", name, receipt.send_error.message)
        self._pending_bytes -= producer.confirmed(answer.sequence_id)
        self._pending_entries[connection] -= 1

    def _recover(self, error: BrokerLost) -> None:
        """Opens all producers again and sends their entries without a receipt, in order; retries for the timeout."""
        log.warning("%s; connecting again", error)
        deadline = time.monotonic() + self._settings.timeout_s
        while True:
            self._cluster.close()
            self._by_id.clear()
            self._pending_entries.clear()
            try:
                self._again_until_open(list(self._producers.values()))
                for topic, producer in self._producers.items():
                    connection = self._connections[topic]
                    for entry in producer.pending:
                        self._pending_entries[connection] = self._pending_entries.get(connection, 0) + 1
                        connection.send(producer.frame(entry))
                break
            except BrokerLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
        self._pending_bytes = sum(
            len(one.body) for producer in self._producers.values() for one in producer.pending
        )


def _not_deduplicated(topic: str) -> PulsarSourceError:
    return PulsarSourceError(
        f"the broker does not deduplicate {topic}, so rows cannot be written exactly once: set "
        "brokerDeduplicationEnabled=true (or deduplication for the namespace), or write with "
        'option("deliveryGuarantee", "at-least-once")'
    )


def _namespace(topic: str) -> str:
    return topic.rpartition("/")[0]
