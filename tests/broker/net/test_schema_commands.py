"""Schemas on the wire: PRODUCER, SUBSCRIBE, GET_SCHEMA and GET_OR_CREATE_SCHEMA with every type, and what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from protocol import pulsar_api_pb2 as api
from protocol.pulsar_api_pb2 import BaseCommand, ServerError
from tests.fakes.client import Client, Port
from tests.fakes.stage import TOPIC, Stage

AVRO = json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]})
OTHER = AVRO.replace('"a"', '"z"')
FIRST = bytes(8)
ON_WIRE = sorted(api.Schema.Type.values())


def schema(kind: int, data: str = "", **properties: str) -> api.Schema:
    sent = api.Schema(name="s", type=api.Schema.Type.ValueType(kind), schema_data=data.encode())
    for key, value in properties.items():
        sent.properties.add(key=key, value=value)
    return sent


def key_value(key: str, key_type: str, value: str, value_type: str, encoding: str = "INLINE") -> api.Schema:
    sent = schema(api.Schema.KeyValue)
    parts = [part.encode() for part in (key, value)]
    sent.schema_data = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    for name, text in (
        ("key.schema.type", key_type),
        ("value.schema.type", value_type),
        ("kv.encoding.type", encoding),
    ):
        sent.properties.add(key=name, value=text)
    return sent


class Asking:
    """A client that asks one request after the other."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.number = 0

    async def _answer(self) -> Any:
        # A schema that is new is checked in a thread, for which `hear` does not wait.
        while not (answers := await self.client.hear()):
            pass
        (answer,) = answers
        return answer

    async def produce(self, sent: api.Schema | None = None, **more: Any) -> Any:
        self.number += 1
        fields: dict[str, Any] = {} if sent is None else {"schema": sent}
        self.client.produce(self.number, producer_name=f"p{self.number}", **fields, **more)
        return await self._answer()

    async def subscribe(self, sent: api.Schema | None = None, **more: Any) -> Any:
        self.number += 1
        fields: dict[str, Any] = {} if sent is None else {"schema": sent}
        self.client.subscribe(self.number, subscription=f"s{self.number}", **fields, **more)
        return await self._answer()

    async def get(self, version: bytes | None = None, topic: str = TOPIC) -> api.CommandGetSchemaResponse:
        fields = {} if version is None else {"schema_version": version}
        self.client.say(BaseCommand.GET_SCHEMA, "getSchema", topic=topic, **fields)
        return (await self._answer()).getSchemaResponse  # type: ignore[no-any-return]

    async def get_or_create(
        self, sent: api.Schema, topic: str = TOPIC
    ) -> api.CommandGetOrCreateSchemaResponse:
        self.client.say(BaseCommand.GET_OR_CREATE_SCHEMA, "getOrCreateSchema", topic=topic, schema=sent)
        return (await self._answer()).getOrCreateSchemaResponse  # type: ignore[no-any-return]


async def asking() -> Asking:
    return Asking(await Port(Stage()).client())


def definition(kind: int) -> api.Schema:
    if kind in (api.Schema.Avro, api.Schema.Json, api.Schema.Protobuf):
        return schema(kind, AVRO, k="v")
    return key_value("", "STRING", AVRO, "AVRO") if kind == api.Schema.KeyValue else schema(kind, k="v")


@pytest.mark.parametrize("kind", [kind for kind in ON_WIRE if kind not in (20, 21)])
@pytest.mark.parametrize("way", ["produce", "subscribe", "get_or_create"])
async def test_schema_of_every_type_is_kept_as_it_came(kind: int, way: str) -> None:
    asks = await asking()
    sent = definition(kind)
    if way == "get_or_create":
        assert (await asks.produce()).producer_success.schema_version == b""
    answer = await getattr(asks, way)(sent)
    if way == "produce":
        assert answer.producer_success.schema_version == FIRST
    elif way == "get_or_create":
        assert answer.schema_version == (FIRST if kind else b"")
        if not answer.schema_version:
            return
    found = await asks.get()
    sent.name = TOPIC.removeprefix("persistent://")
    assert (found.schema, found.schema_version) == (sent, FIRST)


async def test_older_versions_are_found_by_their_number() -> None:
    asks = await asking()
    grown = AVRO.replace("}]}", '}, {"name": "b", "type": "int", "default": 0}]}')
    await asks.produce(schema(api.Schema.Avro, AVRO))
    assert (await asks.produce(schema(api.Schema.Avro, grown))).producer_success.schema_version[-1] == 1
    assert (await asks.get(FIRST)).schema.schema_data == AVRO.encode()
    assert (await asks.get(FIRST + b"more")).schema.schema_data == AVRO.encode()
    assert (await asks.get()).schema.schema_data == grown.encode()
    for version in (bytes(7) + b"\2", b"\xff" * 8):
        assert (await asks.get(version)).error_code == ServerError.TopicNotFound
    assert (await asks.get(b"")).error_code == ServerError.IncompatibleSchema
    assert (await asks.get(topic="persistent://public/default/none")).error_code == ServerError.TopicNotFound
    assert (await asks.get(topic="persistent://a")).error_code == ServerError.InvalidTopicName


async def test_version_of_less_than_eight_bytes_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asks = await asking()
    asks.client.say(BaseCommand.GET_SCHEMA, "getSchema", topic=TOPIC, schema_version=b"1234")
    await asks.client.hear()
    assert asks.client.transport.closing
    assert "a schema version of 4 bytes; 8 are expected" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        schema(api.Schema.Avro, OTHER),
        schema(api.Schema.Avro, "{"),
        schema(api.Schema.Json, AVRO),
        schema(api.Schema.String),
        schema(api.Schema.String, "x"),
        schema(api.Schema.KeyValue, "x"),
        schema(api.Schema.ProtobufNative, "x"),
    ],
    ids=["incompatible", "invalid", "type", "primitive", "data", "key-value", "descriptors"],
)
async def test_schema_that_does_not_fit_is_refused_on_every_command(sent: api.Schema) -> None:
    asks = await asking()
    await asks.produce(schema(api.Schema.Avro, AVRO))
    for way in (asks.produce, asks.subscribe):
        refused = await way(sent)
        assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServerError.IncompatibleSchema)
        assert refused.error.message
    answer = await asks.get_or_create(sent)
    assert answer.error_code == ServerError.IncompatibleSchema
    assert (await asks.get()).schema_version == FIRST, "nothing was stored"
    assert not asks.client.transport.closing


async def test_definition_of_pythons_string_schema_is_accepted() -> None:
    asks = await asking()
    assert (await asks.produce(schema(api.Schema.String, "null"))).producer_success.schema_version == FIRST
    assert (await asks.produce(schema(api.Schema.Int32, "null"))).type == BaseCommand.ERROR


async def test_auto_consume_is_for_consumers_alone() -> None:
    asks = await asking()
    wanted = schema(api.Schema.AutoConsume)
    assert (await asks.subscribe(wanted)).type == BaseCommand.SUCCESS
    assert (await asks.get()).error_code == ServerError.TopicNotFound
    assert (await asks.produce(wanted)).error.error == ServerError.IncompatibleSchema
    assert (await asks.produce(schema(api.Schema.Avro, AVRO))).producer_success.schema_version == FIRST
    assert (await asks.subscribe(wanted)).type == BaseCommand.SUCCESS


async def test_schema_is_added_to_a_topic_that_exists_alone() -> None:
    asks = await asking()
    answer = await asks.get_or_create(schema(api.Schema.Avro, AVRO), "persistent://public/default/none")
    assert answer.error_code == ServerError.TopicNotFound


async def test_key_value_schemas_are_compared_in_both_parts() -> None:
    asks = await asking()
    await asks.produce(key_value(AVRO, "AVRO", AVRO, "JSON"))
    separated = key_value(AVRO, "AVRO", AVRO, "JSON", "SEPARATED")
    assert (await asks.produce(separated)).producer_success.schema_version == FIRST
    for wrong in (
        key_value(OTHER, "AVRO", AVRO, "JSON"),
        key_value(AVRO, "AVRO", OTHER, "JSON"),
        key_value("", "STRING", AVRO, "JSON"),
        key_value(AVRO, "AVRO", "{", "JSON"),
        key_value(AVRO, "AVRO", "", "KEY_VALUE"),
        key_value(AVRO, "AVRO", "", "AUTO_CONSUME"),
        key_value(AVRO, "AVRO", "", "UNHEARD_OF"),
    ):
        assert (await asks.produce(wrong)).error.error == ServerError.IncompatibleSchema


async def test_deleted_schema_is_answered_as_none_and_may_be_replaced() -> None:
    stage = Stage()
    asks = Asking(await Port(stage).client())
    await asks.produce(schema(api.Schema.Avro, AVRO))
    await stage.registry.schemas.registry.delete("public/default/t")
    deleted = await asks.get()
    assert (deleted.schema.type, deleted.schema_version[-1]) == (0, 1)
    assert (await asks.get(FIRST)).error_code == ServerError.TopicNotFound
    assert (await asks.produce(schema(api.Schema.Avro, OTHER))).producer_success.schema_version[-1] == 2


async def test_repeated_request_gets_the_version_again() -> None:
    asks = await asking()
    await asks.produce(schema(api.Schema.Avro, AVRO))
    asks.number = 0
    again = await asks.produce(schema(api.Schema.Avro, AVRO))
    assert again.producer_success.schema_version == FIRST


async def test_refused_producer_adds_no_schema() -> None:
    stage = Stage()
    asks = Asking(await Port(stage).client())
    await asks.produce()
    await stage.namespaces.set_policy("public/default", "encryption_required", True)
    await asks.client.hear()  # The first producer is closed by the policy.
    assert (await asks.produce(schema(api.Schema.Avro, AVRO))).type == BaseCommand.ERROR
    assert (await asks.get()).error_code == ServerError.TopicNotFound


@pytest.mark.parametrize("way", ["produce", "subscribe"])
async def test_topic_stays_awake_while_a_request_waits_for_its_schema(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    client = await Port(stage).client()
    checked, requests = asyncio.Event(), list[int]()

    async def slow(*_: object) -> bytes:
        requests.append((await stage.open()).requests)
        await checked.wait()
        return b""

    monkeypatch.setattr(stage.registry.schemas, "for_producer", slow)
    monkeypatch.setattr(stage.registry.schemas, "check_consumer", slow)
    getattr(client, way)(1)
    assert await client.hear() == []
    assert requests == [1]
    checked.set()
    assert await client.hear()
    assert (await stage.open()).requests == 0
