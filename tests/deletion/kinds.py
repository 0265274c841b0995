"""Kinds of topics, each made with everything that a broker keeps of a topic, and the stored keys to compare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.schemas.schema import Schema, SchemaType
from broker.security.authorization.permissions import Action
from broker.service.compaction.topic_compaction import CompactionStatus
from broker.service.lifecycle.deletion.intents import OWNERS
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.broker.service.compaction.test_topic_compaction import compact
from tests.fakes.stage import Stage

NAMESPACE = "shop/orders"
GROWING = {"/ledgers/idgen"}
"""Keys of counters, which a deletion must not set back."""


async def dump(store: MetadataStore, key: str = "") -> dict[str, bytes]:
    """Returns every key with its value, the counters apart."""
    found: dict[str, bytes] = {}
    if key == OWNERS:  # Ends with the broker.
        return found
    if key and key not in GROWING and (value := await store.get(key)) is not None:
        found[key] = value.value
    for name in await store.children(key or "/"):
        found |= await dump(store, f"{key}/{name}")
    return found


def topic(local: str, domain: str = "persistent", namespace: str = NAMESPACE) -> TopicName:
    return parse_topic_name(f"{domain}://{namespace}/{local}")


async def opened(metadata: MetadataStore, before: Stage | None = None, **settings: Any) -> Stage:
    stage = Stage(entries_per_ledger=3, bucket_entries=4, metadata=metadata, before=before, **settings)
    await stage.namespaces.open()
    await stage.deletions.open()
    return stage


async def with_namespace(stage: Stage) -> None:
    await stage.namespaces.create_tenant("shop", {"adminRoles": [], "allowedClusters": ["standalone"]})
    await stage.namespaces.create(NAMESPACE, {"bundles": {"numBundles": 4}})


async def decorate(stage: Stage, name: TopicName) -> None:
    """Gives the topic everything that the broker keeps of one."""
    schema = Schema(SchemaType.STRING, b"", {})
    # Not by `stage.run`, whose turns are over before the thread that checks a schema gets the processor.
    await stage.registry.schemas.for_producer(name, schema)
    await stage.namespaces.set_topic_policy(str(name.base), "maxMessageSize", 1000)
    await stage.namespaces.set_topic_policy(str(name.base), "global:messageTTL", 10)
    await stage.namespaces.change_permissions(
        name.namespace, lambda now: now.grant_on_topics([str(name.base)], "clerk", [Action.PRODUCE])
    )
    if not name.is_persistent:
        return
    opened_topic = await stage.open(str(name))
    await stage.run(opened_topic.subscribing.create("a/b", EARLIEST, {"team": "x"}))
    await stage.publish(opened_topic, 4, keys=["k", "l", "k", "l"])
    await stage.run(opened_topic.set_deduplication(True))
    await stage.run(opened_topic.transactions.open_buffer())
    opened_topic.transactions.take_snapshot()
    await stage.run(opened_topic.ledger.set_properties({"owner": "me"}))


async def make_partitioned(stage: Stage, name: TopicName) -> None:
    await stage.run(stage.partitioned.create(name, 3, {"p": "q"}))
    await decorate(stage, name.with_partition(0))


async def make_plain(stage: Stage, name: TopicName) -> None:
    await stage.open(str(name))
    await decorate(stage, name)


async def make_compacted(stage: Stage, name: TopicName) -> None:
    found = await stage.open(str(name))
    await decorate(stage, name)
    assert await compact(stage, found) is CompactionStatus.SUCCESS


async def make_delayed(stage: Stage, name: TopicName) -> None:
    """With delayed messages, whose index has ledgers of its own."""
    found = await stage.open(str(name))
    await stage.consume(found, permits=100)
    # Before `decorate`, whose deduplication drops what has the same sequence ids.
    await stage.publish(found, 6, delays_ms=[3_600_000])
    while not found.ledger.store.buckets:
        await stage.settle()
    await decorate(stage, name)


async def make_closed(stage: Stage, name: TopicName) -> None:
    await make_plain(stage, name)
    await stage.run(stage.registry.unload(name))


async def make_fleeting(stage: Stage, name: TopicName) -> None:
    await stage.run(stage.registry.get(name, create=True))
    await decorate(stage, name)


KINDS: dict[str, tuple[str, Callable[[Stage, TopicName], Awaitable[None]]]] = {
    "plain": ("persistent", make_plain),
    "closed": ("persistent", make_closed),
    "compacted": ("persistent", make_compacted),
    "delayed": ("persistent", make_delayed),
    "partitioned": ("persistent", make_partitioned),
    "non-persistent": ("non-persistent", make_fleeting),
}


async def delete(stage: Stage, name: TopicName) -> None:
    if await stage.registry.partitions.count(name):
        await stage.run(stage.partitioned.delete(name, force=True))
    else:
        await stage.run(stage.deletions.topic(name, force=True))
