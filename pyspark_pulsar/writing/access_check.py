"""Asks on the driver for what every task of a write needs, so that a refusal comes once and before the first task.

Otherwise each task would be refused, tried again by Spark and reported with its stack.
"""

from __future__ import annotations

from protocol import requests
from protocol.pulsar_api_pb2 import Schema
from pyspark_pulsar.client.cluster import (
    TRY_AGAIN,
    Cluster,
    ClusterSettings,
    endpoints,
    open_cluster,
    unused_name,
)
from pyspark_pulsar.errors import BrokerLost, BrokerRefused

BUSY = frozenset({"ProducerBusy", "ProducerFenced"})
"""Codes of refusals while another producer is connected, such as that of a killed task; they pass by themselves."""


def check_access(settings: ClusterSettings, topic: str | None, schema: Schema | None) -> None:
    """Opens a connection, and a producer of `topic` with `schema`, which the broker may create; writes nothing.

    BrokerRefused for wrong credentials, a missing right or another schema; TlsRefused for wrong certificates. A broker
    that does not answer is left to the tasks: the driver may be on another network than they, and they try again.
    """
    with open_cluster(settings) as cluster:
        try:
            cluster.connection(endpoints(settings.service_url)[0])
            if topic is not None:
                _open_producer(cluster, topic, schema)
        except BrokerLost:
            return
        except BrokerRefused as error:
            if error.code not in TRY_AGAIN | BUSY:
                raise


def _open_producer(cluster: Cluster, topic: str, schema: Schema | None) -> None:
    (partitions,) = cluster.partitions([topic], create=True)
    name = f"{topic}-partition-0" if partitions else topic
    connection = cluster.connection(cluster.owners([name])[0])
    producer_id = connection.next_id()
    doing, fields = f"opening a producer on {name}", (producer_id, name, unused_name("spark-check"))
    connection.ask(connection.request(doing, requests.producer, *fields, schema=schema, metadata={}))
    # A producer that stayed would count against the topic's limit until the broker has noticed the closed connection.
    closing = f"closing the producer of {name}"
    connection.ask(connection.request(closing, requests.close_producer, producer_id))
