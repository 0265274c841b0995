"""Opens the topic that a path names, for the handlers of topics, partitions and subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from broker.admin.http.answers import PreconditionFailed
from broker.admin.service_view import BrokerView
from broker.service.namespaces.namespaces import NamespaceNotFound
from broker.service.namespaces.partitioned_metadata import StoredPartitions
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic, hold
from foundation.model.errors import BrokerError, NotAllowed, SubscriptionNotFound, TopicNotFound
from foundation.model.topic_name import TopicName
from foundation.value import Json

Part = TypeVar("Part")

PARTITIONS_PER_SLICE = 20
"""Partitions that are looked at before other work of the loop; about 2 ms of statistics."""


def check_namespace(broker: BrokerView, name: TopicName) -> None:
    """Raises NamespaceNotFound for a topic in an unknown namespace."""
    if not broker.namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace not found")


async def existing(broker: BrokerView, name: TopicName) -> Topic:
    """Returns the topic, opened if necessary; it stays open until the request has ended.

    Raises TopicNotFound if it does not exist or has partitions.
    """
    check_namespace(broker, name)
    if await broker.registry.partitions.count(name) or not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    topic = await broker.registry.get(name, create=False)
    hold(topic)
    return topic


async def existing_persistent(broker: BrokerView, name: TopicName) -> PersistentTopic:
    """Returns the topic like `existing`. Raises NotAllowed for a non-persistent one."""
    topic = await existing(broker, name)
    if not isinstance(topic, PersistentTopic):
        raise NotAllowed(f"{name} is not persistent")
    return topic


async def one_persistent(broker: BrokerView, name: TopicName, work: str) -> PersistentTopic:
    """Returns the topic like `existing`.

    Raises NotAllowed for a topic with partitions and for a non-persistent one; `work` names the request for its text.
    """
    check_namespace(broker, name)
    if not name.is_persistent:
        raise NotAllowed(f"{work} on a non-persistent topic is not allowed")
    if await broker.registry.partitions.count(name):
        raise NotAllowed(f"{work} on a partitioned topic is not allowed; name one of its partitions")
    return await existing_persistent(broker, name)


async def parts(broker: BrokerView, name: TopicName) -> list[TopicName]:
    """Returns the partitions of a partitioned topic, else the topic itself."""
    count = await broker.registry.partitions.count(name)
    return [name.with_partition(index) for index in range(count)] or [name]


async def partition_topics(broker: BrokerView, name: TopicName) -> AsyncIterator[Topic]:
    """Yields the topics of all partitions, opened if necessary; other work of the loop runs between slices.

    Raises TopicNotFound for a topic without partitions.
    """
    check_namespace(broker, name)
    if name.partition >= 0:
        raise PreconditionFailed("Partitioned Topic Name should not contain '-partition-'")
    count = await broker.registry.partitions.count(name)
    if not count:
        raise TopicNotFound(f"Partitioned Topic {name} not found")
    for index in range(count):
        part = name.with_partition(index)
        # Not `existing`, which asks the metadata store for each partition.
        topic = broker.registry.topics.get(str(part))
        if topic is None or topic.closed:
            topic = await broker.registry.get(part, create=True)
        hold(topic)
        yield topic
        if index % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
            await asyncio.sleep(0)


async def partitioned_shown(broker: BrokerView, name: TopicName) -> dict[str, Json]:
    """Returns the metadata of a partitioned topic as Pulsar shows it."""
    found = await broker.registry.partitions.find(name) or StoredPartitions(0)
    shown: dict[str, Json] = {"partitions": found.partitions, "deleted": found.deleted}
    if found.properties:
        shown["properties"] = {**found.properties}
    return shown


async def existing_parts(broker: BrokerView, name: TopicName) -> list[PersistentTopic]:
    """Returns the topics of all parts. Raises like `existing_persistent` for the first that fails."""
    return [await existing_persistent(broker, part) for part in await parts(broker, name)]


async def with_each(parts: Iterable[Part], work: Callable[[Part], Awaitable[object]]) -> None:
    """Does the work with each part of a topic, also after one where it failed. Raises the first error at the end."""
    first: BrokerError | None = None
    for part in parts:
        try:
            await work(part)
        except BrokerError as error:
            first = first or error
    if first is not None:
        raise first


def subscription_of(topic: PersistentTopic, name: str) -> Subscription:
    """Returns the subscription. Raises SubscriptionNotFound."""
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise SubscriptionNotFound(f"Subscription {name} not found for topic {topic.name}")
    return subscription


def clients(topic: Topic) -> tuple[int, int]:
    """Returns the numbers of connected (consumers, producers)."""
    subscriptions = getattr(topic, "subscriptions", {}).values()
    return sum(len(one.consumers) for one in subscriptions), len(topic.access.producers)


def owner_url(broker: BrokerView) -> str:
    """Returns the admin URL of this broker, that of the TLS port where there is no other."""
    return broker.addresses.admin_url or broker.addresses.admin_url_tls
