"""Asks on the driver for what every task of a write needs, so that a refusal comes once and before the first task.

Otherwise each task would be refused, tried again by Spark and reported with its stack, and a stream's batch would be
planned in vain.
"""

from __future__ import annotations

from pyspark_pulsar.client.cluster import NOT_FOUND, TRY_AGAIN, ClusterSettings, endpoints, open_cluster
from pyspark_pulsar.errors import BrokerLost, BrokerRefused


def check_access(settings: ClusterSettings, topic: str | None) -> None:
    """Opens a connection and asks for the topic's partitions; creates and writes nothing.

    BrokerRefused for wrong credentials or a missing right, TlsRefused for wrong certificates. A broker that does not
    answer is left to the tasks: the driver may be on another network than they, and they try again.
    """
    with open_cluster(settings) as cluster:
        try:
            cluster.connection(endpoints(settings.service_url)[0])
            if topic is not None:
                cluster.partitions([topic])
        except BrokerLost:
            return
        except BrokerRefused as error:
            # A task creates a missing topic where the broker's settings allow it.
            if error.code not in NOT_FOUND | TRY_AGAIN:
                raise
