"""TopicSchemas: policies, producers and consumers with and without schemas, and schemas of deleted topics."""

from __future__ import annotations

import json

import pytest

from broker.schemas.schema import Schema, SchemaType
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.topics.topic_schemas import NO_VERSION, TopicSchemas, schema_id, version_bytes
from foundation.model.errors import IncompatibleSchema, InvalidSchemaData
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.value import Json
from tests.fakes.stage import TOPIC, Stage

NAME = parse_topic_name(TOPIC)
NAMESPACE = NAME.namespace
STRING = Schema(SchemaType.STRING, b"", {})
AUTO_CONSUME = Schema(SchemaType.AUTO_CONSUME, b"", {})


def avro(*fields: str, optional: bool = False) -> Schema:
    default = {"default": 0} if optional else {}
    definition = {
        "type": "record",
        "name": "A",
        "fields": [{"name": f, "type": "int", **default} for f in fields],
    }
    return Schema(SchemaType.AVRO, json.dumps(definition).encode(), {})


async def opened(**settings: Json) -> tuple[Stage, TopicSchemas]:
    stage = Stage(**settings)  # type: ignore[arg-type]
    await stage.namespaces.open()
    return stage, stage.registry.schemas


async def test_producers_get_versions_of_eight_bytes() -> None:
    _, schemas = await opened()
    assert await schemas.for_producer(NAME, None) == NO_VERSION
    assert await schemas.for_producer(NAME, avro("a")) == bytes(8)
    assert await schemas.for_producer(NAME, avro("a", "b", optional=True)) == bytes(7) + b"\1"
    assert await schemas.for_producer(NAME, avro("a")) == bytes(8)
    assert await schemas.for_producer(NAME, None) == NO_VERSION


async def test_partitions_share_the_schema_of_their_topic() -> None:
    _, schemas = await opened()
    first, second = NAME.with_partition(0), NAME.with_partition(1)
    await schemas.for_producer(first, avro("a"))
    assert schema_id(first) == schema_id(NAME) == f"{NAMESPACE}/{NAME.local}"
    with pytest.raises(IncompatibleSchema):
        await schemas.for_producer(second, avro("z"))


FIRST, READS_OLD, READ_BY_OLD = avro("a"), avro("a", "b", optional=True), avro("a", "c")
STRATEGIES = {
    "ALWAYS_INCOMPATIBLE": (False, False),
    "ALWAYS_COMPATIBLE": (True, True),
    "BACKWARD": (True, False),
    "FORWARD": (True, True),
    "FULL": (True, False),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("level", ["setting", "namespace", "topic", "older"])
async def test_strategy_comes_from_the_narrowest_level(strategy: str, level: str) -> None:
    other = "ALWAYS_INCOMPATIBLE" if strategy == "ALWAYS_COMPATIBLE" else "ALWAYS_COMPATIBLE"
    stage, schemas = await opened(schema_strategy=strategy if level == "setting" else other)
    namespaces = stage.namespaces
    if level == "older":
        words = {"ALWAYS_INCOMPATIBLE": "AutoUpdateDisabled", "ALWAYS_COMPATIBLE": "AlwaysCompatible"}
        word = words.get(strategy, strategy.capitalize())
        await namespaces.set_policy(NAMESPACE, "schema_auto_update_compatibility_strategy", word)
        await namespaces.set_policy(NAMESPACE, "schema_compatibility_strategy", "UNDEFINED")
    elif level != "setting":
        word = strategy if level == "namespace" else other
        await namespaces.set_policy(NAMESPACE, "schema_compatibility_strategy", word)
    if level == "topic":
        await namespaces.set_topic_policy(TOPIC, "schemaCompatibilityStrategy", strategy)
    assert schemas.strategy(NAME) == strategy
    await schemas.for_producer(NAME, FIRST)
    for schema, accepted in zip((READS_OLD, READ_BY_OLD), STRATEGIES[strategy], strict=True):
        if accepted:
            assert await schemas.for_producer(NAME, schema)
        else:
            with pytest.raises(IncompatibleSchema):
                await schemas.for_producer(NAME, schema)


async def test_change_of_a_policy_acts_at_once() -> None:
    stage, schemas = await opened()
    await schemas.for_producer(NAME, FIRST)
    with pytest.raises(IncompatibleSchema):
        await schemas.for_producer(NAME, READ_BY_OLD)
    await stage.namespaces.set_policy(NAMESPACE, "schema_compatibility_strategy", "FORWARD")
    assert await schemas.for_producer(NAME, READ_BY_OLD) == version_bytes(1)


@pytest.mark.parametrize("level", ["setting", "namespace"])
async def test_new_schemas_are_refused_where_updates_are_forbidden(level: str) -> None:
    stage, schemas = await opened(schema_updates=level != "setting")
    if level == "namespace":
        await stage.namespaces.set_policy(NAMESPACE, "is_allow_auto_update_schema", False)
    topic = await stage.open()
    for _ in range(2):
        with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
            await schemas.for_producer(NAME, FIRST)
        with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
            await schemas.check_consumer(topic, FIRST)
    # An administrator adds it.
    await schemas.registry.add(schema_id(NAME), FIRST, schemas.strategy(NAME))
    assert await schemas.for_producer(NAME, FIRST) == version_bytes(0)
    with pytest.raises(IncompatibleSchema):
        await schemas.for_producer(NAME, READS_OLD)


async def test_replicator_may_add_a_compatible_schema_where_a_policy_says_so() -> None:
    """Pulsar 5.0 lets them unless a policy forbids it (PIP-433); with the defaults of 4.2 a policy has to allow it."""
    stage, schemas = await opened(schema_updates=False)
    name = "pulsar.repl.east"
    with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
        await schemas.for_producer(NAME, FIRST, name)
    await stage.namespaces.set_policy(NAMESPACE, "is_allow_auto_update_schema_with_replicator", True)
    assert await schemas.for_producer(NAME, FIRST, name) == version_bytes(0)
    for other in ("", "p", "pulsar.replica"):
        with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
            await schemas.for_producer(NAME, READS_OLD, other)
    with pytest.raises(IncompatibleSchema):
        await schemas.for_producer(NAME, READ_BY_OLD, name)
    assert await schemas.for_producer(NAME, READS_OLD, name) == version_bytes(1)


async def test_replicators_are_known_by_the_prefix_of_the_settings() -> None:
    _, schemas = await opened(
        schema_updates=False, replicators_update_schemas=True, replicator_prefix="other.repl"
    )
    with pytest.raises(IncompatibleSchema, match="auto updating is disabled"):
        await schemas.for_producer(NAME, FIRST, "pulsar.repl.east")
    assert await schemas.for_producer(NAME, FIRST, "other.repl.east") == version_bytes(0)


@pytest.mark.parametrize("level", ["setting", "namespace", "topic"])
async def test_producers_without_a_schema_are_refused_where_schemas_are_enforced(level: str) -> None:
    stage, schemas = await opened(schema_validation=level == "setting")
    if level == "namespace":
        await stage.namespaces.set_policy(NAMESPACE, "schema_validation_enforced", True)
    elif level == "topic":
        await stage.namespaces.set_topic_policy(TOPIC, "schemaValidationEnforced", True)
    assert await schemas.for_producer(NAME, None) == NO_VERSION, "the topic has no schema"
    await schemas.for_producer(NAME, FIRST)
    with pytest.raises(IncompatibleSchema, match="without a schema"):
        await schemas.for_producer(NAME, None)
    await schemas.registry.delete(schema_id(NAME))
    assert await schemas.for_producer(NAME, None) == NO_VERSION


@pytest.mark.parametrize(
    "name",
    ["persistent://pulsar/system/x", f"persistent://{NAMESPACE}/__change_events-partition-0"],
)
async def test_system_topics_have_a_strategy_of_their_own(name: str) -> None:
    stage, schemas = await opened(schema_strategy="ALWAYS_INCOMPATIBLE", schema_updates=False)
    topic = parse_topic_name(name)
    await stage.namespaces.set_policy(topic.namespace, "schema_compatibility_strategy", "FULL")
    assert [await schemas.for_producer(topic, one) for one in (avro("a"), avro("z"))] == [
        version_bytes(0),
        version_bytes(1),
    ]


# Consumers


async def test_first_consumer_adds_its_schema_to_an_unused_topic() -> None:
    stage, schemas = await opened()
    topic = await stage.open()
    await schemas.check_consumer(topic, FIRST)
    assert await schemas.registry.exists(schema_id(NAME))
    await schemas.check_consumer(topic, READS_OLD)
    assert len(await schemas.registry.versions(schema_id(NAME))) == 1, "a second consumer adds nothing"
    with pytest.raises(IncompatibleSchema):
        await schemas.check_consumer(topic, avro("z"))
    with pytest.raises(IncompatibleSchema):
        await schemas.check_consumer(topic, STRING)


async def test_consumers_without_a_schema_are_welcome_everywhere() -> None:
    stage, schemas = await opened(schema_validation=True)
    topic = await stage.open()
    for _ in range(2):
        await schemas.check_consumer(topic, None)
        await schemas.check_consumer(topic, AUTO_CONSUME)
        await schemas.for_producer(NAME, FIRST)


@pytest.mark.parametrize("use", ["producer", "consumer", "data"])
async def test_consumer_is_refused_when_a_topic_in_use_has_no_schema(use: str) -> None:
    stage, schemas = await opened()
    topic = await stage.open()
    if use == "consumer":
        await stage.consume(topic)
    elif use == "producer":
        await stage.producer(topic)
    else:
        await stage.publish(topic, 1)
        assert not topic.access.producers
    with pytest.raises(IncompatibleSchema, match="active topic with empty"):
        await schemas.check_consumer(topic, FIRST)
    assert not await schemas.registry.exists(schema_id(NAME))


async def test_consumers_that_take_any_schema_leave_the_topic_unused() -> None:
    stage, schemas = await opened()
    topic = await stage.open()
    await stage.consume(topic, takes_any_schema=True)
    await schemas.check_consumer(topic, FIRST)
    assert await schemas.registry.exists(schema_id(NAME))


# Deletion


async def add_to(stage: Stage, name: TopicName) -> None:
    await stage.registry.schemas.for_producer(name, FIRST)


async def test_schema_is_deleted_with_its_topic() -> None:
    stage, schemas = await opened()
    await stage.open()
    await add_to(stage, NAME)
    await stage.run(stage.deletions.topic(NAME, force=True))
    assert await schemas.get(NAME, None) is None
    await stage.open()
    assert await schemas.for_producer(NAME, avro("z")) == version_bytes(0)


async def test_schema_stays_when_a_topic_is_only_unloaded() -> None:
    stage, schemas = await opened()
    await stage.open()
    await add_to(stage, NAME)
    await stage.run(stage.registry.unload(NAME))
    assert await schemas.registry.exists(schema_id(NAME))


async def test_schema_is_deleted_with_the_partitioned_topic_and_not_with_a_partition() -> None:
    stage, schemas = await opened()
    partitioned = PartitionedTopics(stage.registry, stage.deletions)
    await stage.run(partitioned.create(NAME, 2))
    await add_to(stage, NAME.with_partition(1))
    await stage.run(stage.deletions.topic(NAME.with_partition(0), force=True))
    assert await schemas.registry.exists(schema_id(NAME))
    await stage.run(partitioned.delete(NAME, force=True))
    assert await schemas.get(NAME, None) is None


async def test_schema_stays_while_the_other_domain_has_a_topic_of_the_name() -> None:
    stage, schemas = await opened()
    await stage.open()
    await add_to(stage, NAME)
    fleeting = parse_topic_name(TOPIC.replace("persistent:", "non-persistent:"))
    await stage.run(stage.registry.get(fleeting, create=True))
    await stage.run(stage.deletions.topic(fleeting, force=True))
    assert await schemas.registry.exists(schema_id(NAME))


async def test_invalid_schema_is_refused_before_anything_is_stored() -> None:
    stage, schemas = await opened()
    topic = await stage.open()
    for schema in (Schema(SchemaType.AVRO, b"{", {}), AUTO_CONSUME, Schema(SchemaType.INT32, b"x", {})):
        with pytest.raises(InvalidSchemaData):
            await schemas.for_producer(NAME, schema)
    with pytest.raises(InvalidSchemaData):
        await schemas.check_consumer(topic, Schema(SchemaType.AVRO, b"{", {}))
    assert await schemas.get(NAME, None) is None
