"""PartitionedMetadata: how many partitions each partitioned topic has, as kept in the metadata store.

A partitioned topic is a count and some properties under Pulsar's path; its messages are in the partitions, which are
topics of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote, unquote

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Versioned
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.errors import TopicNotFound
from foundation.model.topic_name import PERSISTENT, TopicName

PARTITIONED_ROOT = "/admin/partitioned-topics"
"""Pulsar's path in the metadata store."""


class PartitionedMetadata:
    """Reads and writes counts of partitions; counts that were read stay in memory."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        # Only topics that exist: a count of 0 may be created by the next client.
        self._counts: dict[str, int] = {}

    async def count(self, name: TopicName) -> int:
        """Returns the number of partitions, 0 for an unpartitioned topic."""
        count = self._counts.get(str(name))
        if count is None:
            stored = await self._store.get(_key(name))
            if stored is None:
                return 0
            count = int(json.loads(stored.value)["partitions"])
            self._counts[str(name)] = count
        return count

    async def properties(self, name: TopicName) -> dict[str, str]:
        """Returns the properties given at creation, {} for an unpartitioned topic."""
        stored = await self._store.get(_key(name))
        return {} if stored is None else dict(json.loads(stored.value).get("properties") or {})

    async def create(self, name: TopicName, count: int, properties: Mapping[str, str] | None) -> None:
        """Writes a new partitioned topic. BadVersion when another client created it at the same time."""
        metadata: dict[str, object] = {"partitions": count}
        if properties:
            metadata["properties"] = dict(properties)

        async def change() -> None:
            await self._store.put(_key(name), json.dumps(metadata).encode(), ABSENT)
            self._counts[str(name)] = count

        await uninterrupted(change())

    async def set_count(self, name: TopicName, count: int) -> None:
        """Changes the number of partitions and keeps the properties. TopicNotFound, or BadVersion as `create`."""
        # The value is written as a whole, so the properties have to be read first.
        stored = await self._stored(name)
        metadata = {"partitions": count, "properties": json.loads(stored.value).get("properties") or {}}

        async def change() -> None:
            await self._store.put(_key(name), json.dumps(metadata).encode(), stored.version)
            self._counts[str(name)] = count

        await uninterrupted(change())

    async def set_properties(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Replaces the properties and keeps the number of partitions. TopicNotFound, or BadVersion as `create`."""
        stored = await self._stored(name)
        metadata = {"partitions": await self.count(name), "properties": dict(properties)}
        await self._store.put(_key(name), json.dumps(metadata).encode(), stored.version)

    async def _stored(self, name: TopicName) -> Versioned:
        """Returns what is stored; a write by its version makes no topic that was deleted meanwhile anew."""
        stored = await self._store.get(_key(name))
        if stored is None:
            raise TopicNotFound(f"Partitioned topic {name} does not exist")
        return stored

    async def delete(self, name: TopicName) -> None:
        """Forgets a partitioned topic; its partitions are deleted before."""

        async def change() -> None:
            await self._store.delete(_key(name))
            self._counts.pop(str(name), None)

        await uninterrupted(change())

    async def names(self, namespace: str, domain: str = PERSISTENT) -> list[str]:
        """Returns the full names of the namespace's partitioned topics, sorted."""
        names = await self._store.children(f"{PARTITIONED_ROOT}/{domain}/{namespace}")
        return sorted(f"{domain}://{namespace}/{unquote(name)}" for name in names)


def _key(name: TopicName) -> str:
    return f"{PARTITIONED_ROOT}/{name.domain}/{name.namespace}/{quote(name.local, safe='')}"
