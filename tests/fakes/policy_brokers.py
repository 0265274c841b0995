"""Brokers on a store that others may share, as far as policies of topics need them."""

from __future__ import annotations

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.namespaces.stored_forms import Document
from broker.service.topics.policy_events import PolicyEvents
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from protocol.frame import metadata_span
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.fakes.stage import TOPIC, Stage

EVENTS = "persistent://public/default/__change_events"
EVENTS_NAME = parse_topic_name(EVENTS)
DOCUMENT = "/admin/topic-policies/persistent%3A%2F%2Fpublic%2Fdefault%2Ft"


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


async def three_brokers() -> tuple[Broker, Broker, Broker]:
    store = MemoryMetadataStore()
    others = store.another(), store.another()
    first = await Broker(store).open()
    return first, await Broker(others[0], first).open(), await Broker(others[1], first).open()
