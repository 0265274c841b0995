"""A store of version 0.2.0 with everything in it, served by this version: nothing is lost, and nothing is taken over twice.

`tests/data/store-0.2.0.tar.gz` is the data folder that 0.2.0 (commit 31f09efe) left after a clean stop: 100 messages of
which every third is acknowledged, a batch that is acknowledged in part, a partitioned topic, a schema, a delayed message,
policies of a namespace and a topic, rights, a resource group and a changed setting.
The same version has added a compacted topic, one with deduplication, a terminated one, properties of a topic, a cluster, and
transactions: committed, aborted, and one that was open for more than its minute. Paths in the bookie's cookies read DATA.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

import pulsar
import pytest

from magnetar.commands.metadata_command import main as metadata
from tests.interop.support import RECEIVE_MS, Admin, Json, connect, nothing_comes, receive
from tests.vectors.broker_process import BrokerProcess

STORE: Final = Path(__file__).parents[1] / "data/store-0.2.0.tar.gz"
NAMESPACE: Final = "shop/orders"
PLAIN: Final = f"persistent://{NAMESPACE}/plain"
SETTINGS: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "transactionCoordinatorEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
COMPACTED: Final = [("key0", b"v8"), ("key2", b"v10"), ("key3", b"v11"), ("key0", b"v12")]
"""By key; the last one came after the compaction."""
LEFT: Final = [b"message %d" % number for number in range(100) if number % 3 != 1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(STORE) as store:
        store.extractall(tmp_path, filter="data")
    for cookie in tmp_path.glob("data/bookie/*/current/VERSION"):
        cookie.write_text(cookie.read_text().replace("DATA", str(tmp_path / "data")))
    return tmp_path


@pytest.mark.one_broker("opens the embedded store that version 0.2.0 left")
def test_store_of_0_2_0_is_served_with_everything_in_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_first in (True, False):
        with BrokerProcess(folder, SETTINGS) as broker:
            admin = Admin(broker.addresses.admin)
            check_settings(admin)
            check_messages(connect(broker.addresses.pulsar), admin, is_first)
            check_kinds_of_topics(connect(broker.addresses.pulsar), is_first)
            assert broker.stop() == 0
        assert metadata(["verify", str(folder / "data")]) == 0, capsys.readouterr().out


def check_settings(admin: Admin) -> None:
    namespace = f"namespaces/{NAMESPACE}"
    expected: dict[str, Json] = {
        "tenants/shop": {"adminRoles": ["boss"], "allowedClusters": ["standalone"]},
        f"{namespace}/retention": {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100},
        f"{namespace}/messageTTL": 86400,
        f"{namespace}/permissions": {"clerk": ["produce", "consume"]},
        f"persistent/{NAMESPACE}/plain/maxConsumers": 9,
        "brokers/configuration/values": {"dispatcherMaxReadBatchSize": "77"},
        "clusters/far/failureDomains": {},
    }
    for path, value in expected.items():
        assert _sorted(admin.get(path)) == _sorted(value), path
    rate, group = admin.get(f"{namespace}/dispatchRate"), admin.get("resourcegroups/small")
    partitions = admin.get(f"persistent/{NAMESPACE}/parts/partitions")
    schema = admin.get(f"schemas/{NAMESPACE}/typed/schema")
    properties = admin.get(f"persistent/{NAMESPACE}/plain/properties")
    far = admin.get("clusters/far")
    for found, key, value in (
        (properties, "made", "then"),
        (far, "serviceUrl", "http://far.invalid:8080"),
        (rate, "dispatchThrottlingRateInMsg", 1000),
        (group, "publishRateInMsgs", 1000),
        (partitions, "partitions", 3),
        (schema, "type", "AVRO"),
    ):
        assert isinstance(found, dict)
        assert found[key] == value


def check_messages(client: pulsar.Client, admin: Admin, is_first: bool) -> None:
    """Receives and acknowledges what is left; after the first start that is nothing."""

    def reader_of(topic: str, name: str) -> pulsar.Consumer:
        shared = pulsar.ConsumerType.Shared
        earliest = pulsar.InitialPosition.Earliest
        return client.subscribe(
            topic, name, consumer_type=shared, initial_position=earliest, batch_index_ack_enabled=True
        )

    for topic, name, expected in (
        (PLAIN, "holes", LEFT),
        (PLAIN, "untouched", [b"message %d" % number for number in range(100)]),
        (f"persistent://{NAMESPACE}/batches", "s", [b"b%d" % number for number in range(1, 10, 2)]),
        (f"persistent://{NAMESPACE}/parts", "new", [b"part %d" % number for number in range(9)]),
    ):
        consumer = reader_of(topic, name)
        if is_first:
            assert sorted(receive(consumer, len(expected))) == sorted(expected), (topic, name)
        assert nothing_comes(consumer)
        consumer.close()
    typed = reader_of(f"persistent://{NAMESPACE}/typed", "new")
    assert not is_first or len(receive(typed, 1)) == 1
    assert admin.subscription(PLAIN, "holes")["subscriptionProperties"] == {"owner": "me"}
    # Due in ten years.
    delayed = f"persistent://{NAMESPACE}/delayed"
    assert admin.subscription(delayed, "s")["msgBacklog"] == 1
    assert nothing_comes(reader_of(delayed, "s"))
    client.close()


def check_kinds_of_topics(client: pulsar.Client, is_first: bool) -> None:
    """Receives what is left on topics whose kinds keep more than messages and positions, as `check_messages`."""
    topics = f"persistent://{NAMESPACE}"
    for topic, name, expected in (
        ("numbered", "s", [b"n1", b"n2", b"n7"]),
        ("ended", "s", [b"e0", b"e1", b"e2"]),
        ("txn-out", "reader", [b"COMMIT"]),
        # Messages that the aborted transaction and the late one had acknowledged.
        ("txn-in", "s", [b"in1", b"in2"]),
    ):
        consumer = client.subscribe(f"{topics}/{topic}", name, pulsar.ConsumerType.Shared)
        if is_first:
            assert sorted(receive(consumer, len(expected))) == expected, topic
        assert nothing_comes(consumer)
        consumer.close()
    producer = client.create_producer(f"{topics}/numbered", producer_name="once", batching_enabled=False)
    assert producer.last_sequence_id() == 7
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(f"{topics}/ended").send(b"late")
    reader = client.subscribe(
        f"{topics}/compacted",
        f"reads-{is_first}",
        initial_position=pulsar.InitialPosition.Earliest,
        is_read_compacted=True,
    )
    messages = [reader.receive(RECEIVE_MS) for _ in range(4)]
    assert [(one.partition_key(), one.data()) for one in messages] == COMPACTED
    assert nothing_comes(reader)
    client.close()


def _sorted(value: Json) -> Json:
    """Returns the value with sorted lists of roles and actions, whose order says nothing."""
    if isinstance(value, dict):
        return {key: _sorted(one) for key, one in value.items()}
    return [*sorted(map(str, value))] if isinstance(value, list) else value
