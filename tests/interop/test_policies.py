"""Policies set over REST act on official clients that are connected, without a restart or a reconnect.

Rule of this file: a test sets a policy as an operator does, and sees its effect through a client. The size of messages is
not here: this client sends a refused message again for minutes. The recorded scenario `send-topic-max-message-size` has it.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from tests.interop.support import Admin, connect, nothing_comes, receive
from tests.support.command_json import Json
from tests.vectors.broker_process import BrokerProcess

TOPIC = "persistent/public/default"
NAMESPACE = "namespaces/public/default"

Connect = Callable[[str], pulsar.Client]


def test_unacknowledged_messages_of_a_topic_hold_for_a_connected_consumer(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe("unacked", "s", pulsar.ConsumerType.Shared)
    admin.post(f"{TOPIC}/unacked/maxUnackedMessagesOnConsumer", 3)
    producer = client.create_producer("unacked")
    for number in range(6):
        producer.send(b"%d" % number)
    assert receive(consumer, 3, acknowledge=False) == [b"0", b"1", b"2"]
    assert nothing_comes(consumer)
    admin.delete(f"{TOPIC}/unacked/maxUnackedMessagesOnConsumer")
    assert receive(consumer, 3) == [b"3", b"4", b"5"]


def test_limits_and_types_of_a_topic_refuse_clients(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    client.create_producer("limited").send(b"x")
    admin.post(f"{TOPIC}/limited/maxProducers", 1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("limited")
    admin.post(f"{TOPIC}/limited/subscriptionTypesEnabled", ["Exclusive"])
    with pytest.raises(pulsar.PulsarException):
        client.subscribe("limited", "s", pulsar.ConsumerType.Shared)
    client.subscribe("limited", "s", pulsar.ConsumerType.Exclusive)


def test_deduplication_of_a_topic_holds_for_a_connected_producer(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    producer = client.create_producer("once", producer_name="p")
    consumer = client.subscribe("once", "s")
    admin.post(f"{TOPIC}/once/deduplicationEnabled", True)
    producer.send(b"first", sequence_id=10)
    producer.send(b"again", sequence_id=10)
    producer.send(b"second", sequence_id=11)
    assert receive(consumer, 2) == [b"first", b"second"]
    assert nothing_comes(consumer)


def test_policies_survive_a_killed_broker_and_bad_ones_are_not_stored(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as running:
        admin = Admin.of(running)
        admin.put(f"{TOPIC}/kept")
        admin.post(f"{TOPIC}/kept/maxMessageSize", 500)
        admin.post(f"{NAMESPACE}/maxProducersPerTopic", 1)
        values: list[Json] = [10**23, -1, {"a": [1]}]
        for bad in values:
            with pytest.raises(urllib.error.HTTPError):
                admin.post(f"{NAMESPACE}/maxProducersPerTopic", bad)
        running.kill()
        running.start()
        admin = Admin.of(running)
        assert admin.get(f"{TOPIC}/kept/maxMessageSize") == 500
        assert admin.get(f"{NAMESPACE}/maxProducersPerTopic") == 1
        client = connect(running.addresses.pulsar)
        client.create_producer("kept")
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("kept")
        client.close()
