"""A broker of ours and one of Apache Pulsar's take turns on one ZooKeeper and one bookie: each serves what the other left.

Messages, positions and holes; not schemas and policies of topics, which are still in forms of our own. Batches that are
acknowledged in part are not compared: Apache 4.2.4 forgets them in its own restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, connect, numbered, publish, wait_until
from tests.interop.test_zookeeper import Cluster
from tests.support.apache_broker import ApacheBroker, pulsar_home
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import Addresses

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

MESSAGES: Final = 50
"""In each turn; more than two ledgers."""
SETTINGS: Final = {
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
NAMES: Final = ("holes", "half", "nothing")
"""Subscriptions, by what a turn acknowledges."""


class Turns:
    """Both brokers, and what is not acknowledged yet."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper) -> None:
        self.cluster = Cluster(folder, zookeeper, SETTINGS)
        self.apache = ApacheBroker(
            pulsar_home(), folder, f"zk:{zookeeper.address}{self.cluster.root}", SETTINGS
        )
        self.unacked: dict[str, set[bytes]] = {name: set() for name in NAMES}

    def take(self, broker: Addresses, topic: str, turn: int) -> None:
        """Publishes, receives everything that is not acknowledged, and acknowledges a part."""
        client, admin = connect(broker.pulsar), Admin(broker.admin)
        consumers = {name: _subscribe(client, topic, name) for name in NAMES}
        sent = numbered(MESSAGES, turn * MESSAGES)
        publish(client.create_producer(topic, batching_enabled=False), sent)
        for name, consumer in consumers.items():
            wanted = self.unacked[name] = self.unacked[name] | set(sent)
            messages = [consumer.receive(timeout_millis=60_000) for _ in wanted]
            got = {message.data() for message in messages}
            assert (wanted - got, got - wanted) == (set(), set()), f"turn {turn}, {name}"
            with pytest.raises(pulsar.Timeout):
                consumer.receive(timeout_millis=1000)
            chosen = {"holes": messages[1::3], "half": messages[: len(messages) // 2], "nothing": []}
            for message in chosen[name]:
                consumer.acknowledge(message)
                wanted.discard(message.data())
        for name in NAMES:
            # The client sends acknowledgements later, and asks for no answer.
            left = len(self.unacked[name])
            wait_until(
                partial(self._has_left, admin, topic, name, left), f"{left} messages are left for {name}"
            )
        client.close()

    @staticmethod
    def _has_left(admin: Admin, topic: str, name: str, left: int) -> bool:
        return admin.subscription(topic, name)["msgBacklog"] == left


def _subscribe(client: pulsar.Client, topic: str, name: str) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        name,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )


@pytest.fixture
def turns(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Turns]:
    turns = Turns(tmp_path, zookeeper)
    turns.apache.set_up()
    turns.cluster.start_bookie()
    yield turns
    turns.apache.kill()
    turns.cluster.kill()


def test_brokers_that_take_turns_lose_no_message_and_no_acknowledgement(turns: Turns) -> None:
    topic = "persistent://public/default/turns"
    ours = turns.cluster.broker
    for turn in range(0, 4, 2):
        turns.apache.start()
        turns.take(turns.apache.addresses, topic, turn)
        turns.apache.stop()
        ours.start()
        turns.take(ours.addresses, topic, turn + 1)
        assert ours.stop() == 0
