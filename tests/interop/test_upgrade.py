"""A store of version 0.2.0 with everything in it, served by this version: nothing is lost, and nothing is taken over twice.

`tests/data/store-0.2.0.tar.gz` is the data folder that 0.2.0 (commit 31f09efe) left after a clean stop: 100 messages of
which every third is acknowledged, a batch that is acknowledged in part, a partitioned topic, a schema, a delayed message,
policies of a namespace and a topic, rights, a resource group and a changed setting. Paths in the bookie's cookies read DATA.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

import pulsar
import pytest

from magnetar.commands.metadata_command import main as metadata
from tests.interop.support import Admin, Json, connect, nothing_comes, receive
from tests.vectors.broker_process import BrokerProcess

STORE: Final = Path(__file__).parents[1] / "data/store-0.2.0.tar.gz"
NAMESPACE: Final = "shop/orders"
PLAIN: Final = f"persistent://{NAMESPACE}/plain"
LEFT: Final = [b"message %d" % number for number in range(100) if number % 3 != 1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(STORE) as store:
        store.extractall(tmp_path, filter="data")
    for cookie in tmp_path.glob("data/bookie/*/current/VERSION"):
        cookie.write_text(cookie.read_text().replace("DATA", str(tmp_path / "data")))
    return tmp_path


def test_store_of_0_2_0_is_served_with_everything_in_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_first in (True, False):
        with BrokerProcess(folder, {"acknowledgmentAtBatchIndexLevelEnabled": "true"}) as broker:
            check_settings(Admin(broker.addresses.admin))
            check_messages(connect(broker.addresses.pulsar), Admin(broker.addresses.admin), is_first)
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
    }
    for path, value in expected.items():
        assert _sorted(admin.get(path)) == _sorted(value), path
    rate, group = admin.get(f"{namespace}/dispatchRate"), admin.get("resourcegroups/small")
    partitions = admin.get(f"persistent/{NAMESPACE}/parts/partitions")
    schema = admin.get(f"schemas/{NAMESPACE}/typed/schema")
    for found, key, value in (
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


def _sorted(value: Json) -> Json:
    """Returns the value with sorted lists of roles and actions, whose order says nothing."""
    if isinstance(value, dict):
        return {key: _sorted(one) for key, one in value.items()}
    return [*sorted(map(str, value))] if isinstance(value, list) else value
