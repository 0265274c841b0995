"""Lesson of the Tencent article: "How to avoid acknowledgment holes", with the official client.

M2 and M4 reach no consumer and stay unacknowledged, because an error interrupts their dispatch. The consumer acknowledged
the rest and stays connected, so without compensation they would wait for ever, and the backlog quota of the topic would stop
its producers. The broker runs in this process, so that the test can let one write to the consumer's connection fail;
everything else is as in a broker of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pulsar
import pytest

from broker.net.ports import ConsumerOnConnection
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.entry import Entry
from tests.interop.support import (
    SILENCE_MS,
    Admin,
    Clocks,
    connect,
    nothing_comes,
    numbered,
    publish,
    wait_until,
)
from tests.support.memory_broker import memory_broker
from tests.support.mover import Mover
from tests.vectors.broker_process import REPOSITORY, BrokerProcess

TOPIC = "persistent://public/default/article"
LIMIT = 10
SETTINGS = {
    "managedLedgerMaxUnackedRangesToPersist": str(LIMIT),
    "dispatcherPauseOnAckStatePersistentEnabled": "true",
    # A round each second.
    "unackedHoleRedeliveryPeriodSeconds": "1",
}
PENDING_S = 600
"""`unackedHoleRedeliveryPendingSeconds` of a broker whose clock a test advances."""
HELD = 3
"""The message that is not acknowledged at once."""


@contextmanager
def interrupted_dispatch(positions: Iterable[int]) -> Iterator[list[int]]:
    """Lets the first write of each of these entries to a consumer's connection fail."""
    left = set(positions)
    failed: list[int] = []
    deliver = ConsumerOnConnection.deliver

    def fails(port: ConsumerOnConnection, entries: list[Entry]) -> None:
        wrong = [entry.entry_id for entry in entries if entry.entry_id in left]
        if wrong:
            left.difference_update(wrong)
            failed.extend(wrong)
            raise MemoryError("by the test: no memory for the frames")
        deliver(port, entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsumerOnConnection, "deliver", fails)
        yield failed


def publish_and_acknowledge(
    url: str, kind: pulsar.ConsumerType
) -> tuple[pulsar.Client, pulsar.Consumer, pulsar.Producer, list[str]]:
    """Messages M1 to M5, one by one; whatever arrives is acknowledged."""
    client = connect(url)
    consumer = client.subscribe(TOPIC, "s", consumer_type=kind, receiver_queue_size=100)
    producer = client.create_producer(TOPIC, batching_enabled=False)
    got = []
    for number in range(1, 6):
        producer.send(b"M%d" % number, partition_key=f"k{number % 2}")
        if number not in (2, 4):
            message = consumer.receive(60_000)
            got.append(message.data().decode())
            consumer.acknowledge(message)
    return client, consumer, producer, got


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_holes_of_the_article_are_filled_and_the_quota_lets_producers_back(kind: pulsar.ConsumerType) -> None:
    async def play() -> None:
        overrides = (
            "bindAddress=127.0.0.1",
            "advertisedAddress=127.0.0.1",
            # Switched on below: on a busy machine a second may pass before M5 is consumed.
            "unackedHoleRedeliveryEnabled=false",
            "unackedHoleRedeliveryPeriodSeconds=1",
            "backlogQuotaDefaultLimitBytes=100",
            "backlogQuotaDefaultRetentionPolicy=producer_exception",
        )
        async with memory_broker(*overrides) as broker:
            url, admin = broker.addresses.service_url, Admin(broker.addresses.admin_url)
            # M2 and M4 are the entries 1 and 3.
            with interrupted_dispatch((1, 3)) as failed:
                client, consumer, producer, got = await asyncio.to_thread(publish_and_acknowledge, url, kind)
            try:
                assert failed == [1, 3]
                assert got == ["M1", "M3", "M5"]
                await asyncio.to_thread(admin.configure, "unackedHoleRedeliveryEnabled", "true")
                await asyncio.to_thread(fill, consumer, admin)
                # The hole at the front counted everything behind it; it is filled, so the quota leaves the producer alone.
                topic = broker.registry.topics[TOPIC]
                assert isinstance(topic, PersistentTopic)
                await topic.quotas.look()
                await asyncio.to_thread(producer.send, b"M6", partition_key="k1")
                await asyncio.to_thread(lambda: consumer.acknowledge(consumer.receive(60_000)))
            finally:
                await asyncio.to_thread(client.close)

    asyncio.run(play())


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_message_whose_acknowledgement_is_lost_comes_again(
    broker: BrokerProcess, client: pulsar.Client, admin: Admin, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind, receiver_queue_size=100)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(10):
        producer.send(b"%d" % number, partition_key=f"k{number % 2}")
    got = [consumer.receive(60_000) for _ in range(10)]
    for message in got:
        if message.data() not in (b"3", b"6"):
            consumer.acknowledge(message)
    wait_until(lambda: admin.subscription(topic, "s")["msgBacklog"] == 2, "eight are acknowledged")
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SILENCE_MS)
    admin.configure("unackedHoleRedeliveryPendingSeconds", "1")
    try:
        again = [consumer.receive(90_000) for _ in range(2)]
        assert [message.data() for message in again] == [b"3", b"6"]
        assert [message.redelivery_count() for message in again] == [1, 1]
        # The first delivery of the one, the second of the other: both acknowledge the message.
        consumer.acknowledge(next(message for message in got if message.data() == b"3"))
        consumer.acknowledge(again[1])
        wait_until(lambda: admin.subscription(topic, "s")["msgBacklog"] == 0, "the holes are filled")
    finally:
        admin.unconfigure("unackedHoleRedeliveryPendingSeconds")


@pytest.fixture(scope="module")
def advanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose clock a test advances; a client's delay of a negative acknowledgement goes by the machine's."""
    settings = {
        "unackedHoleRedeliveryPendingSeconds": str(PENDING_S),
        "transactionCoordinatorEnabled": "true",
    }
    with BrokerProcess(
        tmp_path_factory.mktemp("advanced"), settings, memory=True, test_faults=True
    ) as running:
        yield running


def hold_one(
    client: pulsar.Client, admin: Admin, topic: str, kind: pulsar.ConsumerType, delay_ms: int
) -> tuple[pulsar.Consumer, pulsar.Message]:
    """Returns a consumer that has acknowledged all of its messages but one, and that one.

    `delay_ms` is that of its negative acknowledgements.
    """
    consumer = client.subscribe(topic, "s", consumer_type=kind, negative_ack_redelivery_delay_ms=delay_ms)
    publish(client.create_producer(topic, batching_enabled=False), numbered(10), partition_key="k")
    messages = [consumer.receive(60_000) for _ in range(10)]
    for message in messages[:HELD] + messages[HELD + 1 :]:
        consumer.acknowledge(message)
    wait_until(lambda: admin.subscription(topic, "s")["msgBacklog"] == 1, "nine are acknowledged")
    return consumer, messages[HELD]


def redelivered_from_consumers(admin: Admin, topic: str) -> object:
    told = admin.get(f"magnetar/subscriptions/why/persistent/public/default/{topic}/s")
    assert isinstance(told, dict)
    return told["redeliveredFromConsumers"]


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_message_with_a_delayed_negative_acknowledgement_comes_once_by_its_client(
    advanced: BrokerProcess,
    connected: Callable[[str], pulsar.Client],
    topic: str,
    kind: pulsar.ConsumerType,
) -> None:
    client, admin, clock = connected(advanced.addresses.pulsar), Admin.of(advanced), Clocks(advanced)
    consumer, held = hold_one(client, admin, topic, kind, delay_ms=1000)
    clock.advance(seconds=0.7 * PENDING_S)
    consumer.negative_acknowledge(held)
    again = consumer.receive(60_000)
    assert (again.data(), again.redelivery_count()) == (held.data(), 1)
    # More than the key's value since the first delivery, less since the one that the client has asked for.
    clock.advance(seconds=0.7 * PENDING_S)
    assert nothing_comes(consumer)
    assert redelivered_from_consumers(admin, topic) == 0
    consumer.acknowledge(again)
    wait_until(lambda: admin.subscription(topic, "s")["msgBacklog"] == 0, "the hole is filled")


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_message_comes_by_the_key_when_its_negative_acknowledgement_is_delayed_for_longer(
    advanced: BrokerProcess,
    connected: Callable[[str], pulsar.Client],
    topic: str,
    kind: pulsar.ConsumerType,
) -> None:
    client, admin, clock = connected(advanced.addresses.pulsar), Admin.of(advanced), Clocks(advanced)
    consumer, held = hold_one(client, admin, topic, kind, delay_ms=3_600_000)
    consumer.negative_acknowledge(held)
    clock.advance(seconds=1.5 * PENDING_S)
    again = consumer.receive(60_000)
    assert (again.data(), again.redelivery_count()) == (held.data(), 1)
    assert redelivered_from_consumers(admin, topic) == 1
    consumer.acknowledge(again)
    wait_until(lambda: admin.subscription(topic, "s")["msgBacklog"] == 0, "the hole is filled")
    assert nothing_comes(consumer)


@pytest.mark.parametrize("action", ["COMMIT", "ABORT"])
def test_message_that_an_open_transaction_has_acknowledged_stays_with_it(
    advanced: BrokerProcess, topic: str, action: str
) -> None:
    admin, clock = Admin.of(advanced), Clocks(advanced)
    source = f"persistent://public/default/{topic}"

    async def play() -> None:
        mover = await Mover.open(advanced.addresses.pulsar, source, f"{source}-target")
        for body in numbered(4):
            await mover.publish(2, body)
        positions = [(await mover.message())[1] for _ in range(4)]
        txn = await mover.begin(100 * PENDING_S * 1000)
        await mover.acknowledge(positions[1], txn)
        await mover.acknowledge(positions[3])
        await mover.acknowledge(positions[0])
        await asyncio.to_thread(clock.advance, seconds=1.5 * PENDING_S)
        # The third one, whose acknowledgement is lost, tells that the broker has searched.
        assert (await mover.message())[1] == positions[2]
        assert not mover.waiting
        assert await asyncio.to_thread(redelivered_from_consumers, admin, topic) == 1
        await mover.acknowledge(positions[2])
        await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action=action, **txn)
        if action == "ABORT":
            assert (await mover.message())[1] == positions[1]
            await mover.acknowledge(positions[1])
        told = await asyncio.to_thread(admin.subscription, topic, "s")
        assert told["msgBacklog"] == 0
        assert not mover.waiting
        await mover.cnx.close()

    asyncio.run(play())


def fill(consumer: pulsar.Consumer, admin: Admin) -> None:
    """Receives the lost messages, in order and each once, from the rounds of the broker."""
    again = [consumer.receive(60_000) for _ in range(2)]
    assert [message.data() for message in again] == [b"M2", b"M4"]
    told = why(admin)
    assert told["redelivered"] == 2
    assert told["consumers"] == {consumer_name(told): 2}
    for message in again:
        consumer.acknowledge(message)
    wait_until(lambda: admin.subscription(TOPIC, "s")["msgBacklog"] == 0, "the holes are filled")
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SILENCE_MS)
    assert why(admin)["redelivered"] == 2


def why(admin: Admin) -> dict[str, object]:
    told = admin.get("magnetar/subscriptions/why/persistent/public/default/article/s")
    assert isinstance(told, dict)
    return dict(told)


def consumer_name(told: dict[str, object]) -> str:
    consumers = told["consumers"]
    assert isinstance(consumers, dict)
    (name,) = consumers
    return str(name)


def test_subscription_pauses_while_its_acknowledgements_cannot_be_stored(
    broker: BrokerProcess, client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=1000
    )
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(4 * LIMIT):
        producer.send(b"%d" % number)
    got = [consumer.receive(60_000) for _ in range(4 * LIMIT)]
    for message in got[1::2]:
        consumer.acknowledge(message)
    wait_until(
        lambda: admin.subscription(topic, "s")["nonContiguousDeletedMessagesRanges"] == 2 * LIMIT,
        "every second message is acknowledged",
    )
    producer.send(b"later")
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SILENCE_MS)
    shown = subscription_command(broker, "why", topic, "s")
    assert "Nothing new is sent before acknowledgements fit" in shown
    assert f"{2 * LIMIT} entries pending at" in shown
    for message in got[::2]:
        consumer.acknowledge(message)
    assert consumer.receive(60_000).data() == b"later"


def subscription_command(broker: BrokerProcess, *words: str) -> str:
    command = [
        sys.executable,
        "-m",
        "magnetar",
        "subscription",
        *words,
        "--admin-url",
        broker.addresses.admin,
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_command_lists_evictions_and_answers_in_json(
    broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    producer.send(b"one")
    client.subscribe(topic, "late").close()
    assert "no backlog quota has taken a message" in subscription_command(broker, "evictions", topic)
    told = json.loads(subscription_command(broker, "why", topic, "late", "--json"))
    assert told["conclusion"] == "Everything that was read is acknowledged."
