"""PartitionedMetadata: changes of one partitioned topic that are made at once."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Versioned
from broker.service.namespaces.partitioned_metadata import PARTITIONED_ROOT, PartitionedMetadata
from foundation.model.errors import BadVersion
from foundation.model.topic_name import parse_topic_name

TOPIC = parse_topic_name("persistent://public/default/p")


class SlowStore(MemoryMetadataStore):
    """Answers a read a turn later, as a store on a disk or on the network does."""

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        await asyncio.sleep(0)
        return found


async def test_count_and_properties_that_change_at_once_are_all_kept() -> None:
    partitions = PartitionedMetadata(SlowStore())
    await partitions.create(TOPIC, 2, {"old": "v", "kept": "v"})
    names = [f"k{number}" for number in range(8)]
    await asyncio.gather(
        *(partitions.change_properties(TOPIC, {name: "v"}) for name in names),
        partitions.set_count(TOPIC, 3),
        partitions.change_properties(TOPIC, {"old": None, "unknown": None}),
    )
    assert await partitions.count(TOPIC) == 3
    stored = await partitions.find(TOPIC)
    assert stored is not None
    assert stored.properties == dict.fromkeys([*names, "kept"], "v")


async def test_deletion_that_arrives_late_leaves_the_topic_that_was_made_anew() -> None:
    partitions = PartitionedMetadata(SlowStore())
    await partitions.create(TOPIC, 2, None)
    await partitions.mark_deleted(TOPIC, ())
    late = asyncio.ensure_future(partitions.delete(TOPIC, marked=True))
    await asyncio.sleep(0)  # It has read the mark.
    await MemoryMetadataStore.delete(partitions._store, f"{PARTITIONED_ROOT}/public/default/persistent/p")  # type: ignore[arg-type]
    await partitions.create(TOPIC, 3, None)
    with pytest.raises(BadVersion):
        await late
    await partitions.delete(TOPIC, marked=True)
    assert await partitions.count(TOPIC) == 3
