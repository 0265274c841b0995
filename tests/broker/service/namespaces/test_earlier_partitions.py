"""Metadata of partitioned topics that versions up to 0.2.0 wrote, taken over to Pulsar's path on every store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore, Write
from broker.service.namespaces.partitioned_metadata import PartitionedMetadata
from foundation.model.errors import MetadataError
from foundation.model.topic_name import parse_topic_name
from tests.fakes.metadata import everything

ROOT = "/admin/partitioned-topics"
TOPICS = {
    "persistent://public/default/p": b'{"partitions":3,"deleted":false,"properties":{"a":"b"}}',
    "persistent://public/default/a b%c": b'{"partitions":4,"deleted":true}',
    "persistent://shop/orders/p": b'{"partitions":5,"deleted":false}',
    "non-persistent://shop/orders/p": b'{"partitions":6,"deleted":false}',
}


def key(name: str, *, old: bool = False) -> str:
    topic = parse_topic_name(name)
    local = topic.local.replace("%", "%25").replace(" ", "%20")
    middle = f"{topic.domain}/{topic.namespace}" if old else f"{topic.namespace}/{topic.domain}"
    return f"{ROOT}/{middle}/{local}"


class CutStore(MemoryMetadataStore):
    """Fails for good after some writes, as a store does whose broker dies."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes_left = writes

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        self._count()
        return await super().put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        self._count()
        await super().delete(key, expected)

    def _count(self) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise MetadataError("cut")


async def values(store: MetadataStore, *, old: bool) -> dict[str, bytes]:
    """The metadata that stands at the old or the new paths."""
    found = {name: await store.get(key(name, old=old)) for name in TOPICS}
    return {name: one.value for name, one in found.items() if one is not None and b"partitions" in one.value}


async def fill(store: MetadataStore) -> None:
    for name, value in TOPICS.items():
        await store.put(key(name, old=True), value)


async def test_metadata_of_an_earlier_version_moves_once(store: MetadataStore) -> None:
    await fill(store)
    partitions = PartitionedMetadata(store)
    await partitions.open()
    moved = await everything(store, ROOT)
    assert {path: one.value for path, one in moved.items()} == {
        key(name): value for name, value in TOPICS.items()
    }
    assert await store.children(ROOT) == ["public", "shop"]
    assert await partitions.names("public/default") == [
        "persistent://public/default/a b%c",
        "persistent://public/default/p",
    ]
    await PartitionedMetadata(store).open()
    assert await everything(store, ROOT) == moved, "a second start writes nothing"


@pytest.mark.parametrize("writes", range(2 * len(TOPICS)))
async def test_cut_move_keeps_each_topic_at_one_path_and_goes_on(writes: int) -> None:
    store = CutStore(writes)
    await fill(store)
    with pytest.raises(MetadataError):
        await PartitionedMetadata(store).open()
    old, new = await values(store, old=True), await values(store, old=False)
    assert not old.keys() & new.keys()
    assert {**old, **new} == TOPICS
    store.writes_left = 100
    await PartitionedMetadata(store).open()
    assert {path: one.value for path, one in (await everything(store, ROOT)).items()} == {
        key(name): value for name, value in TOPICS.items()
    }


async def test_brokers_that_start_at_once_move_everything_once(store: MetadataStore) -> None:
    await fill(store)
    await asyncio.gather(*(PartitionedMetadata(store).open() for _ in range(3)))
    assert {path: one.value for path, one in (await everything(store, ROOT)).items()} == {
        key(name): value for name, value in TOPICS.items()
    }


async def test_metadata_at_the_new_path_counts_where_both_exist() -> None:
    store = MemoryMetadataStore()
    name = "persistent://shop/orders/p"
    await store.put(key(name, old=True), b'{"partitions":2}')
    await store.put(key(name), b'{"partitions":7}')
    await PartitionedMetadata(store).open()
    assert await PartitionedMetadata(store).count(parse_topic_name(name)) == 7
    assert list(await everything(store, ROOT)) == [key(name)]


@pytest.mark.parametrize("old", [False, True])
async def test_tenant_and_namespace_named_like_a_domain_are_told_apart(old: bool) -> None:
    """`/persistent/a/persistent/p` is the new path of one topic and the old path of another."""
    store = MemoryMetadataStore()
    path = f"{ROOT}/persistent/a/persistent/p"
    await store.put(path, b'{"partitions":2}')
    await store.put("/admin/policies/a/persistent" if old else "/admin/policies/persistent/a", b"{}")
    await PartitionedMetadata(store).open()
    topic = "persistent://a/persistent/p" if old else "persistent://persistent/a/p"
    assert await PartitionedMetadata(store).count(parse_topic_name(topic)) == 2
    assert list(await everything(store, ROOT)) == [f"{ROOT}/a/persistent/persistent/p" if old else path]


async def test_deletion_reads_metadata_at_pulsars_path(store: MetadataStore) -> None:
    partitions, name = PartitionedMetadata(store), parse_topic_name("persistent://shop/orders/p")
    await store.put(key(str(name)), b'{"partitions":2,"deleted":false}')
    await partitions.mark_deleted(name, [])
    found = await store.get(key(str(name)))
    assert found is not None
    assert json.loads(found.value) == {"partitions": 2, "deleted": True}
    await partitions.delete(name)
    assert await everything(store, ROOT) == {}
