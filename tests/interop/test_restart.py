"""State that a client finds after the broker was stopped or killed: messages, positions, holes, producers, indexes.

Acknowledgements are asynchronous: `kept` asks for a receipt over a connection of its own before the broker goes,
so that what is expected afterwards was promised.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.interop.support import (
    RECEIVE_MS,
    Admin,
    nothing_comes,
    numbered,
    publish,
    receive,
    wait_until,
)
from tests.support.ports import free_port
from tests.support.raw_client import EARLIEST, RawConnection
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {
    "brokerDeduplicationEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "activeConsumerFailoverDelayTimeMillis": "0",
}
Type = pulsar.ConsumerType
Connect = Callable[[str], pulsar.Client]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """On a port that stays, so that clients which come back by themselves find it."""
    settings = {**SETTINGS, "brokerServicePort": str(free_port()), "bindAddress": "127.0.0.1"}
    with BrokerProcess(tmp_path, settings) as running:
        yield running


def restart(broker: BrokerProcess, how: str) -> None:
    if how == "kill":
        broker.kill()
    else:
        assert broker.stop() == 0
    broker.start()


def kept(
    broker: BrokerProcess, topic: str, subscription: str, kind: str, message_id: pulsar.MessageId
) -> None:
    """Acknowledges a message once more and waits for the receipt: this and all acks before it are durable then."""

    async def ask() -> None:
        connection = await RawConnection.open(Admin.of(broker).owner(topic))
        await connection.connect()
        connection.send("LOOKUP", topic=topic, request_id=1)
        await connection.receive("LOOKUP_RESPONSE")
        connection.send(
            "SUBSCRIBE",
            topic=topic,
            subscription=subscription,
            subType=kind,
            consumer_id=1,
            request_id=2,
        )
        while (await connection.receive()).type_name != "SUCCESS":
            pass
        identity = {"ledgerId": message_id.ledger_id(), "entryId": message_id.entry_id()}
        connection.send("ACK", consumer_id=1, ack_type="Individual", message_id=[identity], request_id=3)
        while (answer := await connection.receive()).type_name != "ACK_RESPONSE":
            pass
        assert not answer.command.ackResponse.HasField("error")
        await connection.close()

    asyncio.run(ask())


def indexes(broker: BrokerProcess, topic: str, count: int) -> list[tuple[int, int]]:
    """(index, messages in the entry) of the first entries, as a client that asks for entry metadata gets them."""

    async def ask() -> list[tuple[int, int]]:
        connection = await RawConnection.open(Admin.of(broker).owner(topic))
        await connection.connect(feature_flags={"supports_broker_entry_metadata": True})
        connection.send("LOOKUP", topic=topic, request_id=1)
        await connection.receive("LOOKUP_RESPONSE")
        connection.send(
            "SUBSCRIBE",
            topic=topic,
            subscription="indexes",
            subType="Exclusive",
            consumer_id=1,
            request_id=2,
            durable=False,
            start_message_id=EARLIEST,
        )
        await connection.receive("SUCCESS")
        connection.send("FLOW", consumer_id=1, messagePermits=1000)
        entries = [(await connection.receive("MESSAGE")).entry() for _ in range(count)]
        await connection.close()
        assert all(entry.checksum == "ok" and entry.broker_entry_metadata is not None for entry in entries)
        return [
            (entry.broker_entry_metadata.index, entry.metadata.num_messages_in_batch)
            for entry in entries
            if entry.broker_entry_metadata is not None
        ]

    return asyncio.run(ask())


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_subscriptions_keep_their_positions_and_holes(
    own_broker: BrokerProcess, connected: Connect, topic: str, how: str
) -> None:
    client = connected(own_broker.addresses.pulsar)
    names = {"cumulative": Type.Exclusive, "holes": Type.Shared, "untouched": Type.Exclusive}
    consumers = {name: client.subscribe(topic, name, kind) for name, kind in names.items()}
    ids = publish(client.create_producer(topic), numbered(100))
    messages = [consumers["cumulative"].receive(RECEIVE_MS) for _ in range(100)]
    consumers["cumulative"].acknowledge_cumulative(messages[29])
    messages = [consumers["holes"].receive(RECEIVE_MS) for _ in range(100)]
    for message in messages[::2]:
        consumers["holes"].acknowledge(message)
    client.close()
    kept(own_broker, topic, "cumulative", "Exclusive", ids[29])
    kept(own_broker, topic, "holes", "Shared", ids[0])
    restart(own_broker, how)
    client = connected(own_broker.addresses.pulsar)
    admin = Admin.of(own_broker)
    subscriptions = admin.get(f"persistent/public/default/{topic}/subscriptions")
    assert isinstance(subscriptions, list)
    assert sorted(map(str, subscriptions)) == sorted(names)
    consumers = {name: client.subscribe(topic, name, kind) for name, kind in names.items()}
    assert admin.subscription(topic, "holes")["msgBacklog"] == 50
    assert receive(consumers["cumulative"], 70) == numbered(70, first=30)
    assert receive(consumers["holes"], 50) == numbered(100)[1::2]
    assert receive(consumers["untouched"], 100) == numbered(100)
    assert all(nothing_comes(consumer) for consumer in consumers.values())


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_sequence_ids_are_remembered(
    own_broker: BrokerProcess, connected: Connect, topic: str, how: str
) -> None:
    client = connected(own_broker.addresses.pulsar)
    client.subscribe(topic, "s")
    producer = client.create_producer(topic, "p")
    for number in range(10):
        producer.send(b"message %d" % number, sequence_id=number)
    client.close()
    restart(own_broker, how)
    client = connected(own_broker.addresses.pulsar)
    producer = client.create_producer(topic, "p")
    assert producer.last_sequence_id() == 9
    for number in range(5, 15):
        producer.send(b"message %d" % number, sequence_id=number)
    consumer = client.subscribe(topic, "s")
    assert receive(consumer, 15) == numbered(15)
    assert nothing_comes(consumer)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_indexes_go_on_where_they_stopped(
    own_broker: BrokerProcess, connected: Connect, topic: str, how: str
) -> None:
    connected(own_broker.addresses.pulsar).subscribe(topic, "keeps the messages").close()
    for _ in range(3):
        client = connected(own_broker.addresses.pulsar)
        single = client.create_producer(topic)
        single.send(b"one")
        batch = client.create_producer(
            topic, batching_enabled=True, batching_max_messages=3, batching_max_publish_delay_ms=60_000
        )
        publish(batch, numbered(3))
        single.send(b"one")
        client.close()
        restart(own_broker, how)
    found = indexes(own_broker, topic, 9)
    assert found == [
        entry for first in (0, 5, 10) for entry in ((first, 1), (first + 3, 3), (first + 4, 1))
    ], "an entry's index is that of its last message"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_clients_come_back_by_themselves(
    own_broker: BrokerProcess, connected: Connect, topic: str, how: str
) -> None:
    client = connected(own_broker.addresses.pulsar)
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    publish(producer, numbered(20))
    assert receive(consumer, 20) == numbered(20)
    assert reader.read_next(RECEIVE_MS).data() == b"message 0"
    restart(own_broker, how)
    publish(producer, numbered(20, first=20))
    got = {consumer.receive(RECEIVE_MS).data() for _ in range(20)}
    while not got >= set(numbered(20, first=20)):  # What was acknowledged just before a kill may come again.
        got.add(consumer.receive(RECEIVE_MS).data())
    assert [reader.read_next(RECEIVE_MS).data() for _ in range(39)] == numbered(39, first=1)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_partitions_policies_and_the_holder_of_a_topic_are_kept(
    own_broker: BrokerProcess, connected: Connect, topic: str, how: str
) -> None:
    admin = Admin.of(own_broker)
    admin.create_partitioned(topic, 3)
    namespace = f"public/own-{topic}"
    admin.put(f"namespaces/{namespace}")
    client = connected(own_broker.addresses.pulsar)
    client.subscribe(topic, "s").close()
    publish(client.create_producer(topic), numbered(30))
    client.create_producer(f"{namespace}/{topic}", access_mode=pulsar.ProducerAccessMode.Exclusive).send(b"x")
    client.close()
    restart(own_broker, how)
    admin = Admin.of(own_broker)
    namespaces = admin.get("namespaces/public")
    assert isinstance(namespaces, list)
    assert {"public/default", namespace} <= set(map(str, namespaces))
    client = connected(own_broker.addresses.pulsar)
    assert len(client.get_topic_partitions(topic)) == 3
    consumer = client.subscribe(topic, "s")
    assert sorted(receive(consumer, 30)) == sorted(numbered(30))
    client.create_producer(f"{namespace}/{topic}", access_mode=pulsar.ProducerAccessMode.Exclusive).send(b"x")


def test_a_kill_while_publishing_loses_and_doubles_nothing(
    own_broker: BrokerProcess, connected: Connect, topic: str
) -> None:
    """The client sends again what was not confirmed; by its sequence id the broker knows what it has."""
    client = connected(own_broker.addresses.pulsar)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, max_pending_messages=10_000)
    confirmed: list[int] = []

    def note(number: int) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
        return lambda result, _: confirmed.append(number) if result == pulsar.Result.Ok else None

    for number in range(3000):
        producer.send_async(b"%d" % number, note(number))
    wait_until(lambda: len(confirmed) > 500, "some are confirmed")
    # A quick broker may have confirmed all of them by now; one that stands still confirms no more.
    for pid in own_broker.pids:
        os.kill(pid, signal.SIGSTOP)
    for number in range(3000, 3500):
        producer.send_async(b"%d" % number, note(number))
    own_broker.kill()
    assert len(confirmed) < 3500
    own_broker.start()
    wait_until(lambda: len(confirmed) == 3500, "all are confirmed")
    assert confirmed == list(range(3500))
    reader = connected(own_broker.addresses.pulsar).create_reader(topic, pulsar.MessageId.earliest)
    assert [int(reader.read_next(RECEIVE_MS).data()) for _ in range(3500)] == list(range(3500))
    assert nothing_comes(reader)
    got = {int(consumer.receive(RECEIVE_MS).data()) for _ in range(3500)}
    while len(got) < 3500:  # Messages in its queue when the broker went come again.
        got.add(int(consumer.receive(RECEIVE_MS).data()))
