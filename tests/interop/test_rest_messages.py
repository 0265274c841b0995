"""Messages that are published over HTTP arrive at an official client, with key, properties and schema."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.interop.support import RECEIVE_MS, Admin, connect, open_url
from tests.storages.places import CLUSTER, STORAGE
from tests.vectors.broker_process import BrokerProcess

Connect = Callable[[str], pulsar.Client]


class Measure(pulsar.schema.Record):  # type: ignore[misc]
    """A record of the client."""

    value = pulsar.schema.Integer()


def publish(broker: BrokerProcess, topic: str, body: object) -> list[dict[str, Any]]:
    """The outcomes of the messages of one request."""
    return publish_at(broker.addresses.admin, topic, body)


def publish_at(url: str, topic: str, body: object) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        f"{url}/topics/persistent/public/default/{topic}",
        method="POST",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with open_url(request) as answer:
        found: list[dict[str, Any]] = json.load(answer)["messagePublishResults"]
    return found


def test_text_arrives_with_its_key_and_properties(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    admin.put("persistent/public/default/texts")
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe("texts", "s", schema=pulsar.schema.StringSchema())
    message = {"key": "k", "payload": "hällo", "properties": {"a": "b"}, "eventTime": 1603045262772}
    (outcome,) = publish(broker, "texts", {"producerName": "http", "messages": [message]})
    got = consumer.receive(RECEIVE_MS)
    assert (got.value(), got.partition_key(), got.properties()) == ("hällo", "k", {"a": "b"})
    assert (got.event_timestamp(), got.producer_name()) == (1603045262772, "http")
    place = got.message_id()
    assert outcome["messageId"] == f"{place.ledger_id()}:{place.entry_id()}:-1"


def test_json_of_a_schema_that_the_topic_has_is_a_record(
    broker: BrokerProcess, admin: Admin, connected: Connect
) -> None:
    admin.put("persistent/public/default/records")
    client = connected(broker.addresses.pulsar)
    consumer = client.subscribe("records", "s", schema=pulsar.schema.JsonSchema(Measure))
    publish(broker, "records", {"schemaVersion": 0, "messages": [{"payload": '{"value": 7}'}]})
    assert consumer.receive(RECEIVE_MS).value().value == 7


@pytest.mark.slow
def test_three_brokers_publish_to_the_partitions_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STORAGE, raising=False)
    monkeypatch.setenv(CLUSTER, "3")
    with BrokerProcess(tmp_path) as broker:
        admin = Admin.of(broker)
        admin.create_partitioned("spread", 12)
        client = connect(broker.addresses.pulsar)
        consumer = client.subscribe("spread", "s", schema=pulsar.schema.StringSchema())
        sent: dict[str, str] = {}
        for number, url in enumerate(broker.admin_urls):
            texts = [f"é{number}-{place}" for place in range(24)]
            messages = [{"payload": text, "key": text[-1]} for text in texts[:12]]
            messages += [{"payload": text} for text in texts[12:]]
            outcomes = publish_at(url, "spread", {"producerName": "http", "messages": messages})
            sent.update({one["messageId"]: text for one, text in zip(outcomes, texts, strict=True)})
        assert len(sent) == 3 * 24
        got: dict[str, str] = {}
        places: dict[str, set[str]] = {}
        for _ in sent:
            message = consumer.receive(RECEIVE_MS)
            place = message.message_id()
            got[f"{place.ledger_id()}:{place.entry_id()}:{place.partition()}"] = message.value()
            places.setdefault(message.partition_key(), set()).add(message.topic_name())
            consumer.acknowledge(message)
        assert got == sent
        del places[""]
        assert {len(topics) for topics in places.values()} == {1}, "a key has one partition"
        owners = {admin.owner(f"spread-partition-{index}") for index in range(12)}
        assert len(owners) > 1, "several brokers have partitions"
        client.close()
