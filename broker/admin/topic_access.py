"""How the handlers of topics, partitions and subscriptions come to the topic that a path names."""

from __future__ import annotations

from broker.admin.service_view import BrokerView
from broker.model.errors import NotAllowed, SubscriptionNotFound, TopicNotFound
from broker.model.topic_name import TopicName
from broker.service.persistent_topic import PersistentTopic
from broker.service.subscription import Subscription
from broker.service.topic import Topic


async def existing(broker: BrokerView, name: TopicName) -> Topic:
    """The topic, opened if need be. TopicNotFound when there is none, or only a partitioned one."""
    if await broker.registry.partitions.count(name) or not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    return await broker.registry.get(name, create=False)


async def existing_persistent(broker: BrokerView, name: TopicName) -> PersistentTopic:
    """NotAllowed for a topic that keeps nothing."""
    topic = await existing(broker, name)
    if not isinstance(topic, PersistentTopic):
        raise NotAllowed(f"{name} is not persistent")
    return topic


async def parts(broker: BrokerView, name: TopicName) -> list[TopicName]:
    """The partitions of a partitioned topic, else the topic itself."""
    count = await broker.registry.partitions.count(name)
    return [name.with_partition(index) for index in range(count)] or [name]


async def existing_parts(broker: BrokerView, name: TopicName) -> list[PersistentTopic]:
    return [await existing_persistent(broker, part) for part in await parts(broker, name)]


def subscription_of(topic: PersistentTopic, name: str) -> Subscription:
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise SubscriptionNotFound(f"Subscription {name} not found for topic {topic.name}")
    return subscription


def clients(topic: Topic) -> tuple[int, int]:
    """(consumers, producers) that are connected."""
    subscriptions = getattr(topic, "subscriptions", {}).values()
    return sum(len(one.consumers) for one in subscriptions), len(topic.access.producers)
