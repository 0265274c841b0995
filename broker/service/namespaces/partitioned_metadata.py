"""PartitionedMetadata: how many partitions each partitioned topic has, as kept in the metadata store.

A partitioned topic is a count, some properties and the mark of its deletion under Pulsar's names; its messages are in the
partitions, which are topics of their own. Every call reads the store, because other brokers write it too: a count in memory
would outlive a deletion there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Final
from urllib.parse import quote, unquote

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put, Write
from foundation.model.errors import BadVersion, MetadataError, ServiceNotReady, TopicNotFound
from foundation.model.topic_name import NON_PERSISTENT, PERSISTENT, TopicName
from foundation.value import Value

PARTITIONED_ROOT: Final = "/admin/partitioned-topics"
"""Pulsar's path in the metadata store."""


class StoredPartitions(Value):
    """The stored metadata of a partitioned topic (Pulsar: PartitionedTopicMetadata)."""

    partitions: int
    """Their number."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Those given at creation, or set later."""
    deleted: bool = False
    """Its deletion is decided: no broker opens, makes or adds a partition any more."""

    def encode(self) -> bytes:
        """Returns the stored value, in Pulsar's fields."""
        value: dict[str, object] = {"partitions": self.partitions, "deleted": self.deleted}
        if self.properties:
            value["properties"] = dict(self.properties)
        return json.dumps(value, separators=(",", ":")).encode()


NO_PARTITIONS: Final = StoredPartitions(0)
"""Of a topic without partitions."""


def decode_partitions(value: bytes) -> StoredPartitions:
    """Returns the metadata of a stored value, of Pulsar's too. MetadataError for other bytes."""
    try:
        found = json.loads(value)
        return StoredPartitions(
            int(found["partitions"]), dict(found.get("properties") or {}), bool(found.get("deleted"))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"the metadata of a partitioned topic cannot be read: {error!r}") from error


class PartitionedMetadata:
    """Reads and writes the metadata of partitioned topics."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def open(self) -> None:
        """Moves what an earlier version has stored at other paths, before the first call. Raises MetadataError."""
        for domain in (PERSISTENT, NON_PERSISTENT):
            if await self._store.children(f"{PARTITIONED_ROOT}/{domain}"):
                # Imported late: stores of this version have no such keys.
                from broker.service.namespaces.earlier_partitions import move_earlier_partitions

                await move_earlier_partitions(self._store, PARTITIONED_ROOT)
                return

    async def find(self, name: TopicName) -> StoredPartitions | None:
        """Returns what is stored, None for an unpartitioned topic."""
        found = await self._find(name)
        return None if found is None else found[0]

    async def count(self, name: TopicName) -> int:
        """Returns the number of partitions, 0 for an unpartitioned topic. Also of one that is being deleted."""
        found = await self.find(name)
        return 0 if found is None else found.partitions

    async def usable_count(self, name: TopicName) -> int:
        """Returns the number of partitions of a topic, or of the one that a partition belongs to; 0 without partitions.

        Raises ServiceNotReady where a broker has decided its deletion.
        """
        return (await self.usable(name)).partitions

    async def usable(self, name: TopicName) -> StoredPartitions:
        """Returns the metadata like `usable_count`; of a topic without partitions 0 and no properties."""
        found = await self.find(name.base)
        if found is None:
            return NO_PARTITIONS
        _check_usable(name, found)
        return found

    async def create(self, name: TopicName, count: int, properties: Mapping[str, str] | None) -> None:
        """Writes a new partitioned topic. BadVersion when another client created it at the same time."""
        stored = StoredPartitions(count, properties or {})
        await self._store.put(_key(name), stored.encode(), ABSENT)

    async def set_count(self, name: TopicName, count: int) -> None:
        """Changes the number of partitions and keeps the properties. TopicNotFound, ServiceNotReady."""
        await self._change(name, lambda stored: replace(stored, partitions=count))

    async def change_properties(self, name: TopicName, changes: Mapping[str, str | None]) -> None:
        """Sets the properties given, and removes those given as None. TopicNotFound, ServiceNotReady."""

        def change(stored: StoredPartitions) -> StoredPartitions:
            after = {**stored.properties, **changes}
            return replace(stored, properties={key: text for key, text in after.items() if text is not None})

        await self._change(name, change)

    async def mark_deleted(self, name: TopicName, beside: Sequence[Write]) -> None:
        """Marks the topic as deleted, for all brokers, in one write with `beside`.

        TopicNotFound where there is no metadata: without the mark the deletion would take what is made anew meanwhile.
        MetadataError; BadVersion when `beside` is refused.
        """
        while True:
            found = await self._store.get(_key(name))
            if found is None:
                raise TopicNotFound(f"Partitioned topic {name} does not exist")
            marked = replace(decode_partitions(found.value), deleted=True)
            try:
                await self._store.put_all((*beside, Put(_key(name), marked.encode(), found.version)))
            except BadVersion:
                # The topic may have grown meanwhile.
                if await self._store.get(_key(name)) == found:
                    raise
            else:
                return

    async def delete(self, name: TopicName, *, marked: bool = False) -> None:
        """Forgets a partitioned topic; its partitions are deleted before. `marked`: one whose deletion is decided alone.

        By its version: a request that arrives late does not remove a topic that was made anew. Raises BadVersion for it.
        """
        found = await self._find(name)
        if found is not None and (found[0].deleted or not marked):
            await self._store.delete(_key(name), found[1])

    async def names(self, namespace: str, domain: str = PERSISTENT) -> list[str]:
        """Returns the full names of the namespace's partitioned topics, sorted."""
        names = await self._store.children(f"{PARTITIONED_ROOT}/{namespace}/{domain}")
        return sorted(f"{domain}://{namespace}/{unquote(name)}" for name in names)

    async def _find(self, name: TopicName) -> tuple[StoredPartitions, int] | None:
        stored = await self._store.get(_key(name))
        return None if stored is None else (decode_partitions(stored.value), stored.version)

    async def _change(self, name: TopicName, change: Callable[[StoredPartitions], StoredPartitions]) -> None:
        """Writes the changed metadata by its version, so that a topic that was deleted meanwhile is not made anew."""
        while True:
            found = await self._find(name)
            if found is None:
                raise TopicNotFound(f"Partitioned topic {name} does not exist")
            stored, version = found
            _check_usable(name, stored)
            changed = change(stored).encode()
            # A change that came between the read and the write, maybe of another broker, stays: this one goes on top of it.
            with suppress(BadVersion):
                await self._store.put(_key(name), changed, version)
                return


def _check_usable(name: TopicName, stored: StoredPartitions) -> None:
    if stored.deleted:
        raise ServiceNotReady(f"Topic {name} is being deleted; ask again")


def _key(name: TopicName) -> str:
    return f"{PARTITIONED_ROOT}/{name.namespace}/{name.domain}/{quote(name.local, safe='')}"
