"""Shadow topics beside Apache Pulsar 4.2.4: same messages, ids and answers, and ours serves what Apache left."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, Json, connect, numbered, publish, wait_until
from tests.interop.test_apache_takes_turns import Turns
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import Addresses

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE: Final = "PULSAR.SHADOW_SOURCE"
EARLIEST: Final = pulsar.InitialPosition.Earliest
Places = list[tuple[bytes, int, int]]


@pytest.fixture
def turns(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Turns]:
    turns = Turns(tmp_path, zookeeper, 20)
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
