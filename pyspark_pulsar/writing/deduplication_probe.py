"""Finds out whether a broker deduplicates a namespace, before the first row is written.

No request returns the setting: PRODUCER_SUCCESS says -1 for every producer name that the broker does not know. So one
empty message is stored under a name of its own, and the producer is opened again: a broker that deduplicates then
returns the message's sequence id. The message goes to a topic that no query reads, because a message in the query's
topic would be seen by its readers, and could not be taken back where the answer is no.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from typing import Final

from crc32c import crc32c

from protocol import requests
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError
from pyspark_pulsar.client.cluster import Cluster
from pyspark_pulsar.client.connection import BrokerConnection
from pyspark_pulsar.errors import BrokerRefused
from pyspark_pulsar.topic_names import PROBE_TOPIC

_u32: Final = struct.Struct(">I")


def deduplicates(cluster: Cluster, namespace: str, producer_name: str) -> bool | None:
    """Returns the answer for `namespace` (`persistent://tenant/name`); None where the broker refuses the probe.

    A refusal is usual where topics are not created automatically. The caller then has to look at its first row.
    BrokerLost after the cluster's timeout.
    """
    topic = f"{namespace}/{PROBE_TOPIC}"
    # A new name each time: the producer of a killed task would still hold a name that its next attempt uses again.
    name = f"{producer_name}-{os.urandom(4).hex()}"
    try:
        return cluster.retrying(lambda: _probe(cluster, topic, name))
    except BrokerRefused:
        return None


def _probe(cluster: Cluster, topic: str, name: str) -> bool:
    # A connection of its own: on a shared one, the receipts of the task's entries would be taken here.
    with contextlib.closing(cluster.new_connection(cluster.owners([topic])[0])) as connection:
        producer_id, known = _open(connection, topic, name)
        if known >= 0:
            # A probe before a break was stored.
            return True
        body = _empty_message(name)
        connection.send(requests.send_head(producer_id, 0, 0, 1, len(body)) + body)
        _await_receipt(connection, topic)
        closing = f"closing the producer of {topic}"
        connection.ask(connection.request(closing, requests.close_producer, producer_id))
        return _open(connection, topic, name)[1] >= 0


def _open(connection: BrokerConnection, topic: str, name: str) -> tuple[int, int]:
    """Returns the producer's id and the last sequence id that the broker knows of its name, -1 for none."""
    producer_id = connection.next_id()
    fields = producer_id, topic, name
    doing = f"opening a producer on {topic}"
    answer = connection.ask(connection.request(doing, requests.producer, *fields, schema=None, metadata={}))
    return producer_id, answer.producer_success.last_sequence_id


def _await_receipt(connection: BrokerConnection, topic: str) -> None:
    deadline = time.monotonic() + connection.timeout_s
    while not connection.receipts:
        connection.receive(deadline - time.monotonic())
    receipt = connection.receipts.pop()
    if receipt.type == BaseCommand.SEND_ERROR:
        error = receipt.send_error
        raise BrokerRefused(f"writing to {topic}", ServerError.Name(error.error), error.message)


def _empty_message(name: str) -> bytes:
    metadata = MessageMetadata(producer_name=name, sequence_id=0, publish_time=int(time.time() * 1000))
    packed = metadata.SerializeToString()
    head = _u32.pack(len(packed)) + packed
    return b"\x0e\x01" + _u32.pack(crc32c(head)) + head
