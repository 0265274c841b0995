"""The lessons of "600K Topics Per Cluster: Stability Optimization of Apache Pulsar at Tencent Cloud", one test each.

A real broker and official clients; hours and days pass on the broker's clock alone. `docs/reference/lessons.md` lists every
statement of the article, and where lessons without a test here are tested.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pulsar
import pytest

from magnetar.kit.controls import Faults
from tests.interop.support import (
    RECEIVE_MS,
    SILENCE_MS,
    WAIT_S,
    Admin,
    Clocks,
    Json,
    numbered,
    publish,
    receive,
    wait_until,
)
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {
    "bindAddress": "127.0.0.1",
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "transactionCoordinatorEnabled": "false",
}
SHARED = pulsar.ConsumerType.Shared
PATH = "persistent/public/default"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("lessons")
    with BrokerProcess(folder, SETTINGS, memory=True, test_faults=True) as running:
        yield running


@pytest.fixture
def clock(broker: BrokerProcess) -> Clocks:
    return Clocks(broker)


@pytest.fixture
def faults(broker: BrokerProcess) -> Iterator[Faults]:
    faults = Faults(broker.addresses.admin)
    yield faults
    faults.clear()


def internal(admin: Admin, topic: str) -> dict[str, Json]:
    found = admin.get(f"{PATH}/{topic}/internalStats")
    assert isinstance(found, dict)
    return found


def stored(admin: Admin, topic: str) -> Json:
    """The number of entries on disk."""
    return internal(admin, topic)["numberOfEntries"]


def backlog(admin: Admin, topic: str, subscription: str = "s") -> Json:
    return admin.subscription(topic, subscription)["msgBacklog"]


def test_holes_are_ranges_and_come_again_when_their_consumer_leaves(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    publish(client.create_producer(topic, batching_enabled=False), numbered(4))
    for number in range(4):
        message = consumer.receive(RECEIVE_MS)
        if number not in (0, 2):
            consumer.acknowledge(message)
    wait_until(lambda: backlog(admin, topic) == 2, "two acknowledgements")
    cursors = internal(admin, topic)["cursors"]
    assert isinstance(cursors, dict)
    cursor = cursors["s"]
    assert isinstance(cursor, dict)
    ranges = str(cursor["individuallyDeletedMessages"])
    # Left-open and right-closed: entry 0 is a hole, entry 1 is acknowledged.
    assert ranges.count("..") == 2
    assert ":0.." in ranges
    assert ":2.." in ranges
    consumer.close()
    again = client.subscribe(topic, "s", consumer_type=SHARED)
    assert receive(again, 2) == [numbered(4)[0], numbered(4)[2]]


def test_one_hole_at_the_front_counts_everything_behind_it_against_the_quota(
    client: pulsar.Client, admin: Admin, clock: Clocks, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    producer = client.create_producer(topic, batching_enabled=False)
    publish(producer, [b"x" * 500] * 8)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(8)]
    for message in messages[1:]:
        consumer.acknowledge(message)
    wait_until(lambda: backlog(admin, topic) == 1, "seven acknowledgements")
    quota: Json = {"limitSize": 2000, "policy": "producer_exception"}
    admin.post(f"{PATH}/{topic}/backlogQuota?backlogQuotaType=destination_storage", quota)
    clock.advance(minutes=2)
    wait_until(lambda: not admin.stats(topic)["publishers"], "the producer to be disconnected")
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(topic)
    consumer.acknowledge(messages[0])
    wait_until(lambda: backlog(admin, topic) == 0, "the last acknowledgement")
    client.create_producer(topic).send(b"after the hole is closed")


def test_unacknowledged_messages_stay_without_a_time_to_live(
    client: pulsar.Client, admin: Admin, clock: Clocks, topic: str
) -> None:
    client.subscribe(topic, "s").close()
    publish(client.create_producer(topic, batching_enabled=False), numbered(7))
    clock.advance(days=400)
    assert backlog(admin, topic) == 7
    assert stored(admin, topic) == 7


def test_message_lives_for_the_longer_of_time_to_live_and_retention(
    client: pulsar.Client, admin: Admin, clock: Clocks, topic: str
) -> None:
    """The article states the sum; docs/how-to/operations.md says when both agree."""
    client.subscribe(topic, "s").close()
    admin.post(f"{PATH}/{topic}/messageTTL?messageTTL=3600")
    admin.post(f"{PATH}/{topic}/retention", {"retentionTimeInMinutes": 180, "retentionSizeInMB": -1})
    publish(client.create_producer(topic, batching_enabled=False), numbered(6))
    clock.advance(minutes=70)
    wait_until(lambda: backlog(admin, topic) == 0, "the expiry")
    assert stored(admin, topic) == 6
    clock.advance(minutes=120)
    wait_until(lambda: stored(admin, topic) == 1, "the first ledger to go")


def test_ledger_is_deleted_only_after_a_rollover(
    client: pulsar.Client, admin: Admin, clock: Clocks, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client.create_producer(topic, batching_enabled=False), numbered(3))
    for _ in range(3):
        consumer.acknowledge(consumer.receive(RECEIVE_MS))
    wait_until(lambda: backlog(admin, topic) == 0, "the acknowledgements")
    clock.advance(minutes=200)
    assert stored(admin, topic) == 3
    clock.advance(minutes=60)
    wait_until(lambda: stored(admin, topic) == 0, "the rollover by time, and the deletion")


def test_delayed_messages_outlive_a_shorter_time_to_live(
    client: pulsar.Client, admin: Admin, clock: Clocks, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    admin.post(f"{PATH}/{topic}/messageTTL?messageTTL={5 * 3600}")
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"in ten hours", deliver_after=timedelta(hours=10))
    producer.send(b"now")
    assert receive(consumer, 1) == [b"now"]
    # Hours, not days: with a consumer connected, each simulated minute takes 0.8 ms of CPU.
    clock.advance(hours=6)
    wait_until(lambda: backlog(admin, topic) == 1, "the other message to expire")
    clock.advance(hours=4, minutes=30)
    assert consumer.receive(RECEIVE_MS).data() == b"in ten hours"


def test_admin_requests_that_wait_for_metadata_stop_neither_messages_nor_lookups(
    client: pulsar.Client, admin: Admin, faults: Faults, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"first")
    assert receive(consumer, 1) == [b"first"]
    fault = faults.delay("METADATA_WRITE", 5.0, times=3)
    answered = threading.Event()

    def create_namespace() -> None:
        admin.put("namespaces/public/slow")
        answered.set()

    request = threading.Thread(target=create_namespace, daemon=True)
    request.start()
    wait_until(lambda: fault.fired, "the request to wait", WAIT_S)
    producer.send(b"second")
    assert receive(consumer, 1) == [b"second"]
    admin.get("namespaces/public")
    assert not answered.is_set()
    request.join(60)
    assert answered.is_set()


@pytest.mark.one_broker("lets the storage of one process fail")
def test_send_is_repeated_within_its_time_out(
    client: pulsar.Client, admin: Admin, faults: Faults, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    fault = faults.refuse("STORAGE_ADD", "FullDisk", times=1)
    producer.send(b"once")
    fault.assert_fired(1)
    assert receive(consumer, 1) == [b"once"]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SILENCE_MS)
