"""PartitionedTopics: creates, grows and deletes partitioned topics together with their partitions.

Used by the admin interface and by PARTITIONED_METADATA, the first request of every client for a topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.namespaces.namespaces import AlreadyExists
from broker.service.policies.partition_limit import check_partitions
from broker.service.topics.new_topic import list_shadow, store_topic
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import check_domain, check_unused, hold
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import BrokerError, InvalidTopicName, NotAllowed, TopicNotFound
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName, check_new_name

PARTITIONS_PER_SLICE = 50
"""Partitions that are created together, in one request to the metadata store. Each takes the loop for 0.05 ms."""


class PartitionedTopics:
    """Operations on all partitions of a topic at once."""

    def __init__(self, registry: TopicRegistry, deletions: Deletions) -> None:
        self._registry = registry
        self._deletions = deletions
        self._metadata = registry.partitions
        self._policies = registry.policies

    async def count_or_create(self, name: TopicName, *, create: bool) -> int:
        """Returns the number of partitions for PARTITIONED_METADATA; 0 = a topic without partitions.

        With `create`, and where topics are created partitioned, a missing topic is created. TopicNotFound when the
        topic does not exist and may not be created, ServiceNotReady while it is being deleted.
        """
        registry = self._registry
        if not await registry.namespaces.stored.has(name.namespace):
            raise TopicNotFound("Namespace not found")
        if str(name) in registry.topics:
            return 0
        count = await self._metadata.usable_count(name)
        if count and name.partition < 0:
            return count
        if await registry.is_stored(name):
            return 0
        if count:
            if name.partition < count:
                return 0
            # The empty text is Pulsar's, as recorded on the wire.
            raise TopicNotFound("")
        if not create or not self._policies.may_create_topics(name.namespace):
            raise TopicNotFound("")
        wanted = self._policies.default_partitions(name.namespace)
        if wanted and name.partition < 0:
            await self.create(name, wanted)
        return wanted if name.partition < 0 else 0

    async def create(self, name: TopicName, count: int, properties: Mapping[str, str] | None = None) -> None:
        """Creates a partitioned topic with all partitions; `properties` are stored with it.

        AlreadyExists when there is a topic of that name; NotAllowed for a count out of range.
        """
        check_partitions(count, self._policies.settings.partitions_max)
        if name.partition >= 0:
            raise InvalidTopicName(f"{name} is the name of a partition")
        check_new_name("Topic", name.local)
        # Otherwise the rest of an interrupted deletion would take the new topic too.
        await self._deletions.check_open(name)
        namespaces = self._registry.namespaces
        if not namespaces.exists(name.namespace) or namespaces.is_ending(name.namespace):
            raise TopicNotFound("Namespace not found")
        await self._metadata.usable_count(name)
        if await self._registry.exists(name):
            raise AlreadyExists("This topic already exists")
        # Before the first is made, so that a refusal leaves nothing.
        if name.is_persistent:
            await self._registry.check_topics_max(name.namespace, count)
        source = (properties or {}).get(SHADOW_SOURCE)
        if source is not None:
            await list_shadow(self._registry, name, source, count)
        # First, so that a stop of the broker leaves a whole topic: a partition below the count is created on demand.
        await self._metadata.create(name, count, properties)
        try:
            await self._create_partitions(name, range(count))
        except BrokerError:
            # If the undo fails too, the broker goes on with it later.
            await self._deletions.partitioned(name, count)
            raise

    async def grow(
        self, name: TopicName, count: int, copy: Callable[[range], Awaitable[None]] | None = None
    ) -> None:
        """Adds partitions up to `count`. They get the durable subscriptions of the first one.

        `copy` makes these where other brokers own partitions. TopicNotFound, or NotAllowed for a count below the
        present one.
        """
        check_partitions(count, self._policies.settings.partitions_max)
        before = await self._metadata.count(name)
        if not before:
            raise TopicNotFound(f"Partitioned topic {name} does not exist")
        if count < before:
            raise NotAllowed(f"Number of new partitions must not be below the existing {before}")
        await self._deletions.check_open(name)
        # Before the partitions: the registry creates none whose index is not below the stored count.
        await self._metadata.set_count(name, count)
        try:
            await self._create_partitions(name, range(before, count))
            if copy is not None and name.is_persistent:
                await copy(range(before, count))
            else:
                await self._copy_subscriptions(name, range(before, count))
        except BrokerError:
            await self._remove_partitions(name, range(before, count))
            await self._metadata.set_count(name, before)
            raise

    async def create_missed(self, name: TopicName) -> None:
        """Creates the partitions that are not stored, and opens none: brokers that own them do when clients come."""
        await self._deletions.check_open(name)
        count = await self._metadata.count(name)
        parts = [name.with_partition(index) for index in range(count)]
        missed = [one.partition for one in parts if not await self._registry.is_stored(one)]
        await self._create_partitions(name, missed)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Deletes all partitions, then schema and metadata. `force` also while clients are connected."""
        count = await self._metadata.count(name)
        if not count:
            raise TopicNotFound(f"Partitioned topic {name} does not exist")
        if not force:
            # All of them before the first is deleted, so that a refusal leaves the topic whole.
            for index in range(count):
                if (topic := self._registry.topics.get(str(name.with_partition(index)))) is not None:
                    check_unused(topic)
        await self._deletions.partitioned(name, count)

    async def _create_partitions(self, name: TopicName, indexes: Sequence[int]) -> None:
        """Stores partitions in slices, and other work of the loop runs between them. As in Pulsar, none is opened."""
        if not name.is_persistent:
            return
        check_domain(name, self._registry.settings)
        # Imported late: not every broker makes partitions.
        from bookkeeper.metadata.new_nodes import NewNodes

        properties = await self._registry.shadows.properties_of_partitions(name)
        put = NewNodes(self._registry.environment.metadata).put
        for start in range(0, len(indexes), PARTITIONS_PER_SLICE):
            part = indexes[start : start + PARTITIONS_PER_SLICE]
            names = [name.with_partition(index) for index in part]
            stored = (
                self._registry.make(one, partial(store_topic, self._registry, one, properties, put))
                for one in names
            )
            # All of the slice have ended when the first error is raised, so that nothing is created after an undo.
            for result in await asyncio.gather(*stored, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
            await asyncio.sleep(0)

    async def _remove_partitions(self, name: TopicName, indexes: range) -> None:
        for index in indexes:
            partition = name.with_partition(index)
            if str(partition) in self._registry.topics or await self._registry.is_stored(partition):
                await self._deletions.topic(partition, force=True)

    async def _copy_subscriptions(self, name: TopicName, indexes: range) -> None:
        if not name.is_persistent:
            return
        first = await self._registry.get(name.with_partition(0), create=True)
        assert isinstance(first, PersistentTopic)
        # The broker makes its own cursors on each partition when it needs them.
        durable = [
            name for name, one in first.subscriptions.items() if one.durable and name not in INTERNAL_CURSORS
        ]
        for index in indexes:
            topic = await self._registry.get(name.with_partition(index), create=True)
            assert isinstance(topic, PersistentTopic)
            hold(topic)
            for subscription in durable:
                if subscription not in topic.subscriptions:
                    await topic.subscribing.create(subscription, EARLIEST)
