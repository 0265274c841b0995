"""Shadow topics beside Apache Pulsar 4.2.4: same messages, ids and answers, and ours serves what Apache left."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pulsar
import pytest

from tests.interop.support import Admin, Json, connect, numbered, publish, wait_until
from tests.interop.test_apache_takes_turns import Turns
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import Addresses

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE: Final = "PULSAR.SHADOW_SOURCE"
EARLIEST: Final = pulsar.InitialPosition.Earliest
MESSAGES: Final = 2000
"""Of each of the two logs that are counted."""
ENVELOPE_BYTES: Final = 36
"""Header and digest that BookKeeper adds to each entry."""
Places = list[tuple[bytes, int, int]]


@pytest.fixture(params=[20])
def turns(tmp_path: Path, zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[Turns]:
    """Both brokers; the parameter is the number of entries in a ledger."""
    # On a busy machine a reader is behind the others for longer than the second that both brokers keep an entry.
    turns = Turns(
        tmp_path, zookeeper, request.param, {"managedLedgerCacheEvictionTimeThresholdMillis": "600000"}
    )
    yield turns
    turns.apache.kill()
    turns.cluster.kill()


def make(admin: Admin, folder: str) -> None:
    """Makes a source and its shadow, as `pulsar-admin` does."""
    admin.put(f"persistent/{folder}/source")
    admin.put(f"persistent/{folder}/shadow", {SOURCE: f"persistent://{folder}/source"})
    admin.put(f"persistent/{folder}/source/shadowTopics", [f"persistent://{folder}/shadow"])


def places(consumer: pulsar.Consumer, count: int, *, acknowledged: int) -> Places:
    """Receives messages; acknowledges the first of them."""
    # The replicator of Apache's broker needs its time on a busy machine.
    messages = [consumer.receive(180_000) for _ in range(count)]
    for message in messages[:acknowledged]:
        consumer.acknowledge(message)
    return [(one.data(), one.message_id().ledger_id(), one.message_id().entry_id()) for one in messages]


def status(admin: Admin, method: str, path: str, body: Json = None) -> tuple[int, str]:
    """Returns the status of an answer, and its reason."""
    try:
        admin._ask(method, path, body)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text)["reason"] if text.startswith("{") else text
    return 200, ""


def answers(addresses: Addresses, folder: str) -> dict[str, object]:
    """Asks one broker; the answers have nothing in them that is different by chance."""
    admin = Admin(addresses.admin)
    admin.put(f"namespaces/{folder}")
    make(admin, folder)
    path = f"persistent/{folder}/source/shadowTopics"
    found: dict[str, object] = {
        "properties": admin.get(f"persistent/{folder}/shadow/properties"),
        "list": admin.get(path),
        "empty": status(admin, "PUT", path, []),
        "missing": status(admin, "PUT", path, [f"persistent://{folder}/missing"]),
        "bad name": status(admin, "PUT", path, ["a/b/c/d/e/f"]),
        "non-persistent": status(admin, "PUT", path, [f"non-persistent://{folder}/x"]),
        "again": status(admin, "PUT", f"persistent/{folder}/shadow", {SOURCE: "x"})[0],
    }
    client = connect(addresses.pulsar)
    names = [(topic, name) for topic in ("source", "shadow") for name in ("one", "other")]
    consumers = [client.subscribe(f"persistent://{folder}/{topic}", name) for topic, name in names]
    producer = client.create_producer(f"persistent://{folder}/source", batching_enabled=False)
    publish(producer, numbered(50))
    got = [places(consumer, 50, acknowledged=50) for consumer in consumers]
    assert got == [got[0]] * 4
    found["bodies"] = [body for body, _, _ in got[0]]
    for topic, name in names:
        wait_until(
            lambda topic=topic, name=name: (  # type: ignore[misc]
                admin.subscription(f"persistent://{folder}/{topic}", name)["msgBacklog"] == 0
            ),
            "everything is acknowledged",
        )
        one = admin.subscription(f"persistent://{folder}/{topic}", name)
        found[f"{topic} {name}"] = one["msgOutCounter"], one["type"]
    code, reason = status(admin, "DELETE", f"persistent/{folder}/source")
    found["delete"] = code, reason.partition(" Delete these first")[0]
    client.close()
    return found


def test_answers_and_messages_are_those_of_apache(turns: Turns) -> None:
    turns.apache.start()
    theirs = answers(turns.apache.addresses, "public/same")
    turns.apache.stop()
    ours = turns.cluster.broker
    ours.start()
    # Another name of the same length: names are part of the answers.
    found = answers(ours.addresses, "public/also")
    assert json.loads(json.dumps(found, default=str).replace("public/also", "public/same")) == json.loads(
        json.dumps(theirs, default=str)
    )


def test_shadow_that_apache_left_is_served_and_deleted_without_harm_to_its_source(turns: Turns) -> None:
    folder, ours = "public/default", turns.cluster.broker
    turns.apache.start()
    admin = Admin(turns.apache.addresses.admin)
    # Apache's broker removes ledgers that a shadow has not read (apache/pulsar#18731).
    admin.post(f"namespaces/{folder}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    make(admin, folder)
    client = connect(turns.apache.addresses.pulsar)
    consumer = client.subscribe(f"persistent://{folder}/shadow", "s", initial_position=EARLIEST)
    publish(client.create_producer(f"persistent://{folder}/source", batching_enabled=False), numbered(50))
    before = places(consumer, 50, acknowledged=30)
    client.close()
    turns.apache.stop()
    ours.start()
    admin, client = Admin(ours.addresses.admin), connect(ours.addresses.pulsar)
    consumer = client.subscribe(f"persistent://{folder}/shadow", "s")
    publish(client.create_producer(f"persistent://{folder}/source", batching_enabled=False), numbered(10, 50))
    # Acknowledgements that Apache's broker has not stored bring more of the first ones.
    found: Places = []
    while not found or found[-1][0] != numbered(60)[-1]:
        found += places(consumer, 1, acknowledged=0)
    assert set(found) >= set(before[30:])
    assert [body for body, _, _ in found[-10:]] == numbered(10, 50)
    consumer.close()
    admin.delete(f"persistent/{folder}/shadow")
    reader = client.create_reader(f"persistent://{folder}/source", pulsar.MessageId.latest)
    reader.close()
    late = client.subscribe(f"persistent://{folder}/source", "late", initial_position=EARLIEST)
    left = places(late, 10, acknowledged=0)
    assert left[0][1:] <= found[-10][1:]
    client.close()


class Work(NamedTuple):
    """The cost of four subscriptions, two on a source and two on its shadow."""

    cached: float
    """Entries that came into the broker's cache, for each message."""
    read: float
    """Bytes that the bookie has read, for each byte of the log."""


def four_subscriptions(turns: Turns, addresses: Addresses, folder: str) -> tuple[Work, Work]:
    """Returns the work for live messages, and for late readers after an unload."""
    admin = Admin(addresses.admin)
    bookie = Admin(turns.cluster.bookie.addresses["http"])
    admin.put(f"namespaces/{folder}")
    admin.post(f"namespaces/{folder}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    make(admin, folder)
    topics = [f"persistent://{folder}/{name}" for name in ("source", "shadow")]
    found = []
    for name in ("live", "late"):
        cached = admin.metric("pulsar_ml_cache_inserted_entries_total")
        read = bookie.metric("bookie_READ_BYTES_total")
        client = connect(addresses.pulsar)
        consumers = [
            client.subscribe(topic, f"{name}-{number}", initial_position=EARLIEST)
            for topic in topics
            for number in range(2)
        ]
        if name == "live":
            producer = client.create_producer(topics[0], batching_enabled=False, block_if_queue_full=True)
            publish(producer, numbered(MESSAGES))
        with ThreadPoolExecutor(len(consumers)) as pool:
            got = list(pool.map(partial(places, count=MESSAGES, acknowledged=0), consumers))
        assert got == [got[0]] * 4
        client.close()
        stats = admin.get(f"persistent/{folder}/source/internalStats")
        assert isinstance(stats, dict)
        assert isinstance(stats["totalSize"], int)
        found.append(
            Work(
                (admin.metric("pulsar_ml_cache_inserted_entries_total") - cached) / MESSAGES,
                (bookie.metric("bookie_READ_BYTES_total") - read)
                / (stats["totalSize"] + MESSAGES * ENVELOPE_BYTES),
            )
        )
        for topic in ("shadow", "source"):
            admin.put(f"persistent/{folder}/{topic}/unload")
    return found[0], found[1]


@pytest.mark.parametrize("turns", [5 * MESSAGES], indirect=True)
def test_entries_are_cached_and_read_once_and_by_apache_once_for_each_topic(turns: Turns) -> None:
    turns.apache.start()
    theirs = four_subscriptions(turns, turns.apache.addresses, "public/same")
    turns.apache.stop()
    turns.cluster.broker.start()
    ours = four_subscriptions(turns, turns.cluster.broker.addresses, "public/also")
    print(f"live and late, ours: {ours}, Apache's: {theirs}")
    # Readers that are beside each other by chance may read some entries twice.
    for work, wanted in zip((*ours, *theirs), ((1, 0), (1, 1), (2, 1), (2, 2)), strict=True):
        assert work == pytest.approx(wanted, abs=0.2)
