"""Messages that are published over HTTP arrive at an official client, with key, properties and schema."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pulsar

from tests.interop.support import RECEIVE_MS, Admin, open_url
from tests.vectors.broker_process import BrokerProcess

Connect = Callable[[str], pulsar.Client]


class Measure(pulsar.schema.Record):  # type: ignore[misc]
    """A record of the client."""

    value = pulsar.schema.Integer()


def publish(broker: BrokerProcess, topic: str, body: object) -> list[dict[str, Any]]:
    """The outcomes of the messages of one request."""
    request = urllib.request.Request(
        f"{broker.addresses.admin}/topics/persistent/public/default/{topic}",
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
