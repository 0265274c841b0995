"""Schemas with the official Python client: evolution, refusals, restarts, deletion, and bad definitions."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pulsar.schema import (
    Array,
    AvroSchema,
    Integer,
    JsonSchema,
    ProtobufNativeSchema,
    Record,
    Schema,
    String,
    StringSchema,
)

from tests.interop.support import RECEIVE_MS, Admin, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {"allowAutoTopicCreationType": "non-partitioned"}
PUBLISHES = {"producer_name": "p"}


class Order(Record):  # type: ignore[misc]  # The client has no types.
    number = Integer(required=True)
    items = Array(String())


class Person(Record):  # type: ignore[misc]  # The client has no types.
    name = String(required=True)


def order(*more: str, required: bool = False) -> AvroSchema:
    """The first version has `number`, a later one more texts."""
    kind: object = "string" if required else ["null", "string"]
    default = {} if required else {"default": None}
    fields = [{"name": "number", "type": "int"}, *({"name": name, "type": kind, **default} for name in more)]
    return AvroSchema(None, schema_definition={"type": "record", "name": "Order", "fields": fields})


def send(client: pulsar.Client, topic: str, schema: Schema, *values: object) -> None:
    producer = client.create_producer(topic, schema=schema)
    for value in values:
        producer.send(value)
    producer.close()


def received(consumer: pulsar.Consumer, count: int) -> list[tuple[int, object]]:
    """Version and value of so many messages."""
    messages = [consumer.receive(RECEIVE_MS) for _ in range(count)]
    # The client gives the eight bytes as a text.
    return [(ord(message.schema_version()[-1]), message.value()) for message in messages]


def versions(admin: Admin, topic: str) -> list[int]:
    found = admin.get(f"schemas/public/default/{topic}/schemas")
    assert isinstance(found, dict)
    listed = found["getSchemaResponses"]
    assert isinstance(listed, list)
    return [one["version"] for one in listed]  # type: ignore[index,call-overload,misc]


def status(ask: Callable[[], object]) -> int:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask()
    return refused.value.code


def test_consumer_decodes_each_message_with_the_version_that_wrote_it(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    first, second = order(), order("note")
    consumer = client.subscribe(topic, "s", schema=first)
    send(client, topic, first, {"number": 1})
    send(client, topic, second, {"number": 2, "note": "n"})
    send(client, topic, first, {"number": 3})
    newest = client.subscribe(topic, "t", schema=second, initial_position=pulsar.InitialPosition.Earliest)
    assert received(consumer, 3) == [(0, {"number": 1}), (1, {"number": 2}), (0, {"number": 3})]
    assert received(newest, 3) == [
        (0, {"number": 1, "note": None}),
        (1, {"number": 2, "note": "n"}),
        (0, {"number": 3, "note": None}),
    ]
    assert versions(admin, topic) == [0, 1]


def test_incompatible_clients_are_refused_and_others_work_on(
    client: pulsar.Client, other_client: pulsar.Client, admin: Admin, topic: str
) -> None:
    schema = JsonSchema(Order)
    consumer = client.subscribe(topic, "s", schema=schema)
    producer = client.create_producer(topic, schema=schema)
    for wrong in (JsonSchema(Person), AvroSchema(Order), StringSchema()):
        with pytest.raises(pulsar.IncompatibleSchema):
            other_client.create_producer(topic, schema=wrong)
        with pytest.raises(pulsar.IncompatibleSchema):
            other_client.subscribe(topic, "other", schema=wrong)
    producer.send(Order(number=1, items=["a"]))
    version, value = received(consumer, 1)[0]
    assert (version, value.number, value.items) == (0, 1, ["a"])  # type: ignore[attr-defined]
    assert versions(admin, topic) == [0]


def test_consumer_that_cannot_read_the_newest_version_is_refused(client: pulsar.Client, topic: str) -> None:
    send(client, topic, order(), {"number": 1})
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=order("note", required=True))
    client.subscribe(topic, "s", schema=order("note"))


def test_strategy_of_the_namespace_acts_on_the_next_client(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    namespace = f"public/n-{topic}"
    name = f"persistent://{namespace}/orders"
    admin.put(f"namespaces/{namespace}")
    send(client, name, order(), {"number": 1})
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(name, schema=order("note", required=True))
    admin.put(f"namespaces/{namespace}/schemaCompatibilityStrategy", "FORWARD")
    send(client, name, order("note", required=True), {"number": 2, "note": "n"})
    admin.post(f"namespaces/{namespace}/isAllowAutoUpdateSchema", False)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(name, schema=order("note", "more", required=True))
    send(client, name, order(), {"number": 3})
    client.create_producer(name).close()
    admin.post(f"namespaces/{namespace}/schemaValidationEnforced", True)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(name)


def test_text_and_protobuf_schemas_are_kept(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=StringSchema())
    send(client, topic, StringSchema(), "größer")
    assert received(consumer, 1) == [(0, "größer")]
    native = f"{topic}-native"
    consumer = client.subscribe(native, "s", schema=ProtobufNativeSchema(Timestamp))
    send(client, native, ProtobufNativeSchema(Timestamp), Timestamp(seconds=5))
    assert received(consumer, 1) == [(0, Timestamp(seconds=5))]
    found = admin.get(f"schemas/public/default/{native}/schema")
    assert isinstance(found, dict)
    assert found["type"] == "PROTOBUF_NATIVE"


def test_deleted_schema_makes_room_for_another_form(client: pulsar.Client, admin: Admin, topic: str) -> None:
    send(client, topic, order(), {"number": 1})
    admin.delete(f"schemas/public/default/{topic}/schema")
    assert status(lambda: admin.get(f"schemas/public/default/{topic}/schema")) == 404
    send(client, topic, AvroSchema(Person), Person(name="n"))
    assert versions(admin, topic) == [2]
    admin.delete(f"schemas/public/default/{topic}/schema?force=true")
    send(client, topic, order(), {"number": 1})
    assert versions(admin, topic) == [0]


def test_deleted_topic_takes_its_schema_with_it(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.create_partitioned(topic, 2)
    send(client, topic, order(), {"number": 1})
    admin.delete(f"persistent/public/default/{topic}-partition-1?force=true")
    assert versions(admin, topic) == [0]
    admin.delete(f"persistent/public/default/{topic}/partitions?force=true")
    assert versions(admin, topic) == []
    plain = f"{topic}-plain"
    send(client, plain, order(), {"number": 1})
    admin.delete(f"persistent/public/default/{plain}?force=true")
    send(client, plain, AvroSchema(Person), Person(name="n"))
    assert versions(admin, plain) == [0]


def test_producers_of_all_partitions_share_one_schema(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    admin.create_partitioned(topic, 4)
    consumer = client.subscribe(topic, "s", schema=order())
    send(client, topic, order("note"), *({"number": n, "note": None} for n in range(8)))
    assert sorted(value["number"] for _, value in received(consumer, 8)) == list(range(8))  # type: ignore[index]
    assert versions(admin, topic) == [0, 1]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(Person))


# Bad input


def padded(size: int) -> AvroSchema:
    schema = order()
    definition = {**json.loads(schema.schema_info().schema()), "doc": "x" * size}
    return AvroSchema(None, schema_definition=definition)


def test_schema_of_one_mebibyte_is_refused_and_nothing_is_stored(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    for schema in (padded(1 << 20), padded(3_000_000)):
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=schema)
    assert versions(admin, topic) == []
    send(client, topic, padded(800_000), {"number": 1})
    assert versions(admin, topic) == [0]


BAD = {
    "no JSON": "nonsense",
    "no name": '{"type":"record","fields":[]}',
    "unknown type": '{"type":"record","name":"A","fields":[{"name":"a","type":"B"}]}',
    "endless": '{"type":"array","items":' * 5000,
    "union in union": '["null",["int"]]',
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_invalid_definition_is_refused_over_rest(admin: Admin, topic: str, name: str, kind: str) -> None:
    path = f"schemas/public/default/{topic}"
    body = {"type": kind, "schema": BAD[name], "properties": {}}
    assert status(lambda: admin.post(f"{path}/schema", body)) == 422  # type: ignore[arg-type]
    assert status(lambda: admin.post(f"{path}/compatibility", body)) == 500  # type: ignore[arg-type]
    assert versions(admin, topic) == []


def test_recursive_schema_is_kept_and_grows(client: pulsar.Client, admin: Admin, topic: str) -> None:
    def tree(*more: str) -> AvroSchema:
        fields = [
            {"name": "value", "type": "int"},
            {"name": "kids", "type": {"type": "array", "items": "Tree"}, "default": []},
            *({"name": name, "type": "int", "default": 0} for name in more),
        ]
        return AvroSchema(None, schema_definition={"type": "record", "name": "Tree", "fields": fields})

    consumer = client.subscribe(topic, "s", schema=tree())
    send(
        client,
        topic,
        tree("weight"),
        {"value": 1, "weight": 2, "kids": [{"value": 2, "kids": [], "weight": 1}]},
    )
    assert received(consumer, 1) == [(1, {"value": 1, "kids": [{"value": 2, "kids": []}]})]
    assert versions(admin, topic) == [0, 1]


@pytest.mark.slow
def test_thousand_versions_are_served(client: pulsar.Client, admin: Admin, topic: str) -> None:
    path = f"schemas/public/default/{topic}"
    for number in range(1000):
        schema = order(*(f"f{number % 10}_{index}" for index in range(number // 10 + 1)))
        body = {"type": "AVRO", "schema": schema.schema_info().schema(), "properties": {}}
        admin.post(f"{path}/schema", body)
    assert versions(admin, topic) == list(range(1000))
    consumer = client.subscribe(topic, "s", schema=order())
    send(client, topic, order("f0_0"), {"number": 1, "f0_0": None})
    assert received(consumer, 1) == [(0, {"number": 1})]
    # A client that is still there would come back, and its topic with it.
    consumer.close()
    admin.delete(f"persistent/public/default/{topic}?force=true")
    assert versions(admin, topic) == []


# Restarts


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, SETTINGS) as running:
        yield running


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_schemas_survive_a_restart(
    own_broker: BrokerProcess, connected: Callable[[str], pulsar.Client], how: str
) -> None:
    client = connected(own_broker.addresses.pulsar)
    send(client, "kept", order(), {"number": 1})
    send(client, "kept", order("note"), {"number": 2, "note": "n"})
    send(client, "gone", order(), {"number": 1})
    admin = Admin.of(own_broker)
    admin.delete("schemas/public/default/gone/schema")
    before = admin.get("schemas/public/default/kept/schemas")
    client.close()
    if how == "kill":
        own_broker.kill()
    else:
        assert own_broker.stop() == 0
    own_broker.start()
    admin, client = Admin.of(own_broker), connected(own_broker.addresses.pulsar)
    assert admin.get("schemas/public/default/kept/schemas") == before
    assert versions(admin, "gone") == []
    consumer = client.subscribe(
        "kept", "s", schema=order("note"), initial_position=pulsar.InitialPosition.Earliest
    )
    assert received(consumer, 2) == [
        (0, {"number": 1, "note": None}),
        (1, {"number": 2, "note": "n"}),
    ]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer("kept", schema=AvroSchema(Person))
    send(client, "gone", AvroSchema(Person), Person(name="n"))
    assert versions(admin, "gone") == [2]


def test_confirmed_schemas_survive_a_kill_in_the_middle_of_adding_more(own_broker: BrokerProcess) -> None:
    admin = Admin.of(own_broker)
    confirmed: list[int] = []

    def add_until_the_broker_is_gone() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            for number in range(1000):
                schema = order(*(f"f{index}" for index in range(number))).schema_info().schema()
                admin.post(
                    "schemas/public/default/t/schema", {"type": "AVRO", "schema": schema, "properties": {}}
                )
                confirmed.append(number)

    adding = threading.Thread(target=add_until_the_broker_is_gone)
    adding.start()
    wait_until(lambda: len(confirmed) >= 20, "20 versions are confirmed")
    own_broker.kill()
    adding.join()
    own_broker.start()
    admin = Admin.of(own_broker)
    found = versions(admin, "t")
    # The last one may be stored although its answer was lost.
    assert found in ([*confirmed], [*confirmed, len(confirmed)])
    for version in found:
        one = admin.get(f"schemas/public/default/t/schema/{version}")
        assert isinstance(one, dict)
        assert len(json.loads(str(one["data"]))["fields"]) == version + 1
