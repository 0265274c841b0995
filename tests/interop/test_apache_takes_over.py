"""A broker of Apache Pulsar starts on a store that Magnetar alone has written: its setup tool has never seen the store.

It has load manager and transaction coordinators, so it reads more of the store than the brokers of the other tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.interop.support import RECEIVE_MS, Admin, Json, connect, numbered, publish
from tests.interop.test_apache_takes_turns import PolicyAdmin, Turns
from tests.interop.test_apache_takes_turns_with_documents import change, shown
from tests.support.java import ZooKeeper
from tests.support.mover import TARGET, Mover
from tests.vectors.broker_process import Addresses

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

NAMESPACE: Final = "public/default"
TOPIC: Final = f"persistent://{NAMESPACE}/turns"
SCHEMA: Final[Json] = {
    "type": "AVRO",
    "schema": '{"type":"record","name":"A","fields":[{"name":"f","type":"int"}]}',
    "properties": {},
}
TTL_S: Final = 3600
DELAY: Final = timedelta(days=1)
"""Longer than the test: the message must not come."""


@pytest.fixture
def turns(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Turns]:
    settings = {"loadBalancerEnabled": "true", "transactionCoordinatorEnabled": "true"}
    turns = Turns(tmp_path, zookeeper, 20, settings, is_set_up=False)
    yield turns
    turns.apache.kill()
    turns.cluster.kill()


async def test_apache_serves_a_store_that_its_setup_tool_has_never_seen(turns: Turns) -> None:
    ours, theirs = turns.cluster.broker, turns.apache
    ours.start()
    wanted = await _write(turns, ours.addresses)
    assert ours.stop() == 0

    theirs.start()
    _read(turns, theirs.addresses, wanted)
    turns.take(theirs.addresses, TOPIC, 1)
    theirs.stop()

    # The setup tool completes a store in use and changes nothing of it.
    theirs.set_up()
    theirs.start()
    _read(turns, theirs.addresses, wanted)
    turns.take(theirs.addresses, TOPIC, 2)
    theirs.stop()

    ours.start()
    _read(turns, ours.addresses, wanted)
    turns.take(ours.addresses, TOPIC, 3)
    assert ours.stop() == 0


async def _write(turns: Turns, broker: Addresses) -> dict[str, Json]:
    """Makes topics of each kind; returns what administrators see."""
    admin, client = Admin(broker.admin), connect(broker.pulsar)
    turns.take(broker, TOPIC, 0)
    change(admin, client, 0)
    PolicyAdmin(broker).set("turns", "messageTTL", TTL_S)
    admin.post(f"schemas/{NAMESPACE}/versions/schema", SCHEMA)
    admin.put(f"persistent/{NAMESPACE}/parts/partitions", 3)
    for name in ("parts", "ended", "delayed"):
        consumer = _subscribe(client, name)
        producer = client.create_producer(f"persistent://{NAMESPACE}/{name}", batching_enabled=False)
        publish(producer, numbered(9))
        consumer.acknowledge(consumer.receive(RECEIVE_MS))
        if name == "delayed":
            producer.send(b"tomorrow", deliver_after=DELAY)
        consumer.close()
        producer.close()
    admin.post(f"persistent/{NAMESPACE}/ended/terminate")
    client.close()
    mover = await Mover.open(broker.pulsar)
    # Without a subscription the ledgers would be trimmed.
    await mover.subscribe(TARGET, 2, "reader")
    for action in ("COMMIT", "ABORT"):
        txn = await mover.begin(600_000)
        await mover.publish(1, action.encode(), txn)
        await mover.ask("END_TXN", "END_TXN_RESPONSE", txn_action=action, **txn)
    await mover.cnx.close()
    return shown(admin)


def _read(turns: Turns, broker: Addresses, wanted: dict[str, Json]) -> None:
    """Compares all but the messages of `TOPIC` and changes nothing."""
    admin, client = Admin(broker.admin), connect(broker.pulsar)
    assert shown(admin) == wanted
    assert PolicyAdmin(broker).shown("turns") == {"messageTTL": TTL_S}
    found = admin.get(f"schemas/{NAMESPACE}/versions/schema")
    assert isinstance(found, dict)
    assert (found["type"], found["data"]) == ("AVRO", SCHEMA["schema"])  # type: ignore[index,call-overload]
    for name, left in {"parts": 8, "ended": 8, "delayed": 8}.items():
        consumer = _subscribe(client, name)
        got = {consumer.receive(RECEIVE_MS).data() for _ in range(left)}
        assert len(got) == left
        assert got < set(numbered(9))
        with pytest.raises(pulsar.Timeout):
            consumer.receive(timeout_millis=1000)
        consumer.close()
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(f"persistent://{NAMESPACE}/ended").send(b"late")
    reader = client.subscribe(TARGET, "reader", consumer_type=pulsar.ConsumerType.Shared)
    assert reader.receive(RECEIVE_MS).data() == b"COMMIT"
    with pytest.raises(pulsar.Timeout):
        reader.receive(timeout_millis=1000)
    client.close()


def _subscribe(client: pulsar.Client, name: str) -> pulsar.Consumer:
    return client.subscribe(
        f"persistent://{NAMESPACE}/{name}",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=1,
    )
