"""PolicyEvents: policies of topics in `__change_events`, of one broker and of several on one store."""

from __future__ import annotations

from typing import cast

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.namespaces.stored_forms import Document, Json
from broker.service.topics.policy_events import PolicyEvents
from foundation.model.topic_name import parse_topic_name
from protocol.frame import metadata_span
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.fakes.stage import TOPIC, Stage

NAME = parse_topic_name(TOPIC)
EVENTS = "persistent://public/default/__change_events"
EVENTS_NAME = parse_topic_name(EVENTS)


class Broker:
    """A broker on a store that others may share."""

    def __init__(self, store: MetadataStore, before: Broker | None = None) -> None:
        self.stage: Stage = Stage(metadata=store, before=None if before is None else before.stage)
        self.events = PolicyEvents(self.stage.registry, self.stage.environment)

    async def open(self) -> Broker:
        await self.stage.run(self.stage.namespaces.open())
        await self.stage.run(self.events.take_over())
        return self

    async def set(self, key: str, value: Json, topic: str = TOPIC) -> None:
        await self.stage.run(self.stage.namespaces.set_topic_policy(topic, key, value))

    async def forget(self, topic: str = TOPIC) -> None:
        await self.stage.run(self.stage.namespaces.forget_topic(topic))

    async def policies(self, topic: str = TOPIC) -> Document:
        await self.stage.run(self.events.load(parse_topic_name(topic)))
        return dict(self.stage.namespaces.topic_policies(topic))

    async def stored(self) -> list[tuple[MessageMetadata, bytes]]:
        topic = await self.stage.open(EVENTS)
        found, position = [], topic.ledger.ledgers.first()
        while position <= topic.ledger.last_confirmed:
            body = (await self.stage.run(topic.ledger.read_entry(position))).body
            start, end = metadata_span(body)
            found.append((MessageMetadata.FromString(bytes(body[start:end])), bytes(body[end:])))
            position = topic.ledger.ledgers.next_valid(position)
        return found


async def one_broker() -> Broker:
    store = MemoryMetadataStore()
    store.another()
    return await Broker(store).open()


async def two_brokers() -> tuple[Broker, Broker]:
    store = MemoryMetadataStore()
    other = store.another()
    first = await Broker(store).open()
    return first, await Broker(other, first).open()


async def test_policies_are_events_and_survive_a_restart() -> None:
    broker = await one_broker()
    await broker.set("maxProducerPerTopic", 3)
    await broker.set("global:maxConsumerPerTopic", 4)
    wanted = {"maxProducerPerTopic": 3, "global:maxConsumerPerTopic": 4}
    assert await broker.policies() == wanted
    keys = [(one.partition_key, list(one.replicate_to)) for one, _ in await broker.stored()]
    assert keys == [(TOPIC, ["standalone"]), (f"__G__{TOPIC}", [])]
    store = cast("MemoryMetadataStore", broker.stage.environment.metadata)
    assert await store.children("/admin/topic-policies") == []
    await broker.stage.run(broker.stage.registry.close())
    assert await (await Broker(store, broker).open()).policies() == wanted


async def test_change_of_one_broker_acts_on_the_open_topics_of_another() -> None:
    one, other = await two_brokers()
    topic = await other.stage.open()
    await one.set("maxMessageSize", 50)
    await one.stage.settle()
    assert topic.message_bytes_max == 50
    await one.set("maxMessageSize", 60)
    await one.stage.settle()
    assert topic.message_bytes_max == 60, "an event in a ledger that is open"
    assert EVENTS not in other.stage.registry.topics, "the first broker keeps its topic"
    await one.forget()
    await one.stage.settle()
    assert topic.message_bytes_max == 0
