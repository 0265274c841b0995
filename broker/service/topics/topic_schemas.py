"""TopicSchemas: what a topic does with the schema of a producer or consumer, by its policies.

All partitions of a topic, and a persistent and a non-persistent topic of one name, share one schema, as in Pulsar.
Nothing here runs per message: clients put the version that they got into each message themselves.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.schemas.schema import Schema, SchemaType, VersionedSchema
from broker.schemas.schema_registry import SchemaRegistry
from broker.schemas.schema_store import SchemaStore
from broker.schemas.strategy import Strategy
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.topics.topic import Topic
from foundation.model.errors import IncompatibleSchema
from foundation.model.topic_name import TopicName

_VERSION: Final = struct.Struct(">q")
NO_VERSION: Final = b""
"""Version of a producer without a schema."""


def schema_id(name: TopicName) -> str:
    """Returns the name under which a topic's schema is kept: `tenant/namespace/topic`."""
    return f"{name.namespace}/{name.base.local}"


def version_bytes(version: int) -> bytes:
    """Returns a version as clients get it and as messages carry it."""
    return _VERSION.pack(version)


def version_of(data: bytes) -> int:
    """Returns the version in the first eight bytes. struct.error for fewer bytes."""
    return int(_VERSION.unpack_from(data)[0])


def schemas_of(environment: ManagedLedgerEnvironment) -> SchemaRegistry:
    """Returns the registry of schemas: in ledgers where other brokers share the metadata store."""
    store = SchemaStore(environment.metadata)
    if environment.metadata.is_shared:
        # Here, because most brokers have a store of their own.
        from broker.schemas.schema_ledgers import SchemaLedgers

        ledgers, ids = environment.ledgers, environment.ids
        store = SchemaLedgers(environment.metadata, ledgers, ids, environment.turn, environment.now_ns)
    return SchemaRegistry(store, environment.wall_ms)


class TopicSchemas:
    """The schemas of all topics, under their policies."""

    def __init__(self, registry: SchemaRegistry, policies: EffectivePolicies) -> None:
        self.registry = registry
        """Versions without policies, for the admin interface."""
        self._policies = policies

    def strategy(self, name: TopicName) -> Strategy:
        """Returns the strategy in force for a topic."""
        return Strategy(self._policies.schema_strategy(name))

    async def for_producer(self, name: TopicName, schema: Schema | None, producer_name: str = "") -> bytes:
        """Returns the version for a producer; None = a producer without a schema.

        A new schema is added. IncompatibleSchema or InvalidSchemaData refuses the producer.
        """
        if schema is not None:
            by_replicator = producer_name.startswith(f"{self._policies.settings.replicator_prefix}.")
            return version_bytes(await self._add(name, schema, by_replicator=by_replicator))
        if self._policies.enforces_schemas(name) and await self.registry.exists(schema_id(name)):
            raise IncompatibleSchema(
                "Producers cannot connect or send message without a schema to topics with a schema "
                "when SchemaValidationEnforced is enabled"
            )
        return NO_VERSION

    async def check_consumer(self, topic: Topic, schema: Schema | None) -> None:
        """Adds the schema to a topic that nobody uses, else compares it with those of the topic.

        IncompatibleSchema or InvalidSchemaData refuses the consumer. One without a schema may always come.
        """
        if schema is None or schema.type is SchemaType.AUTO_CONSUME:
            return
        name = topic.name
        if topic.is_idle and not await self.registry.exists(schema_id(name)):
            await self._add(name, schema)
        else:
            await self.registry.check_consumer(schema_id(name), schema, self.strategy(name))

    async def _add(self, name: TopicName, schema: Schema, *, by_replicator: bool = False) -> int:
        if self._policies.allows_schema_updates(name, by_replicator=by_replicator):
            return await self.registry.add(schema_id(name), schema, self.strategy(name))
        found = await self.registry.find_equal(schema_id(name), schema)
        if found is None:
            raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
        return found

    async def get(self, name: TopicName, version: int | None) -> VersionedSchema | None:
        """Returns a version, None = the newest. None when the topic has no such version."""
        return await self.registry.get(schema_id(name), version)

    async def forget(self, name: TopicName) -> None:
        """Deletes the schema of a topic that is deleted."""
        await self.registry.forget(schema_id(name))
