"""TopicRegistry: every topic of the broker, loaded when somebody asks for it, and the partitioned topics' metadata."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from urllib.parse import quote, unquote

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import ROOT as LEDGERS_ROOT
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.metadata.metadata_store import ABSENT
from broker.model.errors import InvalidTopicName, MetadataError, NotAllowed, ServiceNotReady, TopicNotFound
from broker.model.position import EARLIEST
from broker.model.topic_name import PERSISTENT, TopicName
from broker.service.dispatcher import CallLater
from broker.service.namespaces import AlreadyExists, Namespaces
from broker.service.non_persistent_topic import NonPersistentTopic
from broker.service.persistent_topic import PersistentTopic
from broker.service.settings import ServiceSettings
from broker.service.topic import Topic
from protocol.broker_entry_metadata import EntryStamp

log = logging.getLogger("magnetar")

PARTITIONED_ROOT = "/admin/partitioned-topics"

LOAD_TIMES_KEPT = 10_000

TopicEvent = Callable[[TopicName, bool], None]
"""(topic, True = it exists now, False = it is gone)"""


class TopicRegistry:
    def __init__(
        self,
        environment: ManagedLedgerEnvironment,
        ledger_settings: ManagedLedgerSettings,
        settings: ServiceSettings,
        namespaces: Namespaces,
        *,
        call_later: CallLater,
    ) -> None:
        self.settings = settings
        self.namespaces = namespaces
        self.topics: dict[str, Topic] = {}
        """Loaded ones, by full name."""
        self.loads = 0
        """Topics opened since the start."""
        self.load_times_ms: deque[float] = deque(maxlen=LOAD_TIMES_KEPT)
        """How long the last ones took."""
        self.closed = False
        self._environment = environment
        self._ledger_settings = ledger_settings
        self._call_later = call_later
        self._loading: dict[str, asyncio.Task[Topic]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """Topics that are being closed or deleted; whoever asks for one meanwhile waits."""
        self._partitions: dict[str, int] = {}
        """Of partitioned topics that were asked for."""
        self._watchers: list[TopicEvent] = []

    # Loading

    async def get(self, name: TopicName, *, create: bool, by_admin: bool = False) -> Topic:
        """The topic, opened if need be. TopicNotFound when it does not exist and may not be created.

        `by_admin`: the rules of automatic creation do not hold for an administrator.
        """
        while True:
            topic = self.topics.get(str(name))
            if topic is not None and not topic.closed:
                return topic
            task = self._loading.get(str(name))
            begun_here = task is None
            if task is None:
                task = asyncio.ensure_future(self._load(name, create=create, by_admin=by_admin))
                self._loading[str(name)] = task
                task.add_done_callback(lambda done: self._loaded(str(name), done))
            try:
                return await asyncio.shield(task)
            except TopicNotFound:
                if begun_here or not create:  # Else the one who began may not have been allowed to create it.
                    raise

    def _loaded(self, name: str, task: asyncio.Task[Topic]) -> None:
        del self._loading[name]
        if not task.cancelled():
            task.exception()  # Whoever waits has it; nobody waiting is no reason to complain.

    async def _load(self, name: TopicName, *, create: bool, by_admin: bool) -> Topic:
        while (leaving := self._leaving.get(str(name))) is not None:
            await asyncio.wait((leaving,))
        if self.closed:
            raise ServiceNotReady("The broker is shutting down")
        started_ns = self._environment.now_ns()
        existed = name.is_persistent and await self._ledger_exists(name)
        if not existed:
            await self._check_may_create(name, create=create, by_admin=by_admin)
        topic: Topic
        if name.is_persistent:
            topic = await self._open_persistent(name)
        else:
            topic = NonPersistentTopic(name, self.settings, self.namespaces)
        self._hand_settings(topic)  # They may have changed while the topic was opened.
        self.topics[str(name)] = topic
        self.loads += 1
        self.load_times_ms.append((self._environment.now_ns() - started_ns) / 1e6)
        if not existed:
            self._announce(name, exists=True)
        return topic

    async def _check_may_create(self, name: TopicName, *, create: bool, by_admin: bool) -> None:
        if not self.namespaces.exists(name.namespace):
            raise TopicNotFound("Namespace not found")
        partitions = await self.partitions(name.base)
        if name.partition >= 0:
            if partitions and name.partition >= partitions:
                raise TopicNotFound(f"Topic partition {name} does not exist: the topic has {partitions}")
            if partitions:
                return
        elif partitions:
            raise NotAllowed(f"Partitioned topic {name} has {partitions} partitions; use one of them")
        if not create or not (by_admin or self.may_create(name.namespace)):
            raise TopicNotFound(f"Topic {name} does not exist")

    async def _open_persistent(self, name: TopicName) -> PersistentTopic:
        settings = self.settings
        stamp = EntryStamp(
            timestamp=settings.entry_timestamp, index=settings.entry_index, now_ms=self._environment.wall_ms
        )
        ledger = await ManagedLedger.open(
            name.ledger_name, self._environment, self._ledger_settings, stamp=stamp
        )
        topic = PersistentTopic(
            name, ledger, settings, self.namespaces, turn=self._environment.turn, call_later=self._call_later
        )
        await topic.set_deduplication(self.deduplicates(name.namespace))
        topic.on_fenced = lambda: self._close_fenced(topic)
        return topic

    def _close_fenced(self, topic: PersistentTopic) -> None:
        if not topic.closed:
            log.warning(
                "! %s was taken over by another broker; it is closed and opened when asked for", topic.name
            )
            self._leave(topic, topic.close())

    def _leave(self, topic: Topic, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Close or delete the topic; until that has ended, well or badly, it is not opened again."""
        name = str(topic.name)
        topic.closed = True

        def left(task: asyncio.Task[None]) -> None:
            del self._leaving[name]
            if self.topics.get(name) is topic:
                del self.topics[name]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("! closing %s: %s", name, error)

        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._leaving[name] = task
        task.add_done_callback(left)
        return task

    # Settings and policies

    def reconfigure(self, ledger_settings: ManagedLedgerSettings, settings: ServiceSettings) -> None:
        """New values for topics that are open and for those to come."""
        self._ledger_settings = ledger_settings
        self.settings = settings
        for topic in self.topics.values():
            self._hand_settings(topic)

    def _hand_settings(self, topic: Topic) -> None:
        topic.reconfigure(self.settings)
        if isinstance(topic, PersistentTopic):
            topic.ledger.reconfigure(self._ledger_settings)

    def deduplicates(self, namespace: str) -> bool:
        policy = self.namespaces.policy(namespace, "deduplication")
        return policy if isinstance(policy, bool) else self.settings.deduplication

    async def namespace_changed(self, namespace: str) -> None:
        """A policy was set: topics that are open follow."""
        for topic in list(self.topics.values()):
            if topic.name.namespace == namespace and isinstance(topic, PersistentTopic):
                await topic.set_deduplication(self.deduplicates(namespace))

    def may_create(self, namespace: str) -> bool:
        policy = self.namespaces.policy(namespace, "autoTopicCreation")
        if isinstance(policy, dict):
            return policy.get("allowAutoTopicCreation") is True
        return self.settings.auto_topic_creation

    def _auto_partitions(self, namespace: str) -> int:
        """Partitions of a topic that is created by being asked for; 0 = none."""
        policy = self.namespaces.policy(namespace, "autoTopicCreation")
        if isinstance(policy, dict):
            count = policy.get("defaultNumPartitions")
            return count if policy.get("topicType") == "partitioned" and isinstance(count, int) else 0
        return self.settings.auto_topic_partitions

    async def _ledger_exists(self, name: TopicName) -> bool:
        return await self._environment.metadata.get(f"{LEDGERS_ROOT}/{name.ledger_name}") is not None

    async def exists(self, name: TopicName) -> bool:
        """Loaded, stored, a partitioned topic, or a partition of one."""
        if str(name) in self.topics or (name.is_persistent and await self._ledger_exists(name)):
            return True
        partitions = await self.partitions(name.base)
        return partitions > max(0, name.partition)

    # Partitioned topics

    async def partitions(self, name: TopicName) -> int:
        """How many partitions the topic has, 0 = it is not partitioned."""
        count = self._partitions.get(str(name))
        if count is None:
            stored = await self._environment.metadata.get(_partitioned_key(name))
            if stored is None:
                return 0
            count = int(json.loads(stored.value)["partitions"])
            self._partitions[str(name)] = count
        return count

    async def partitioned_properties(self, name: TopicName) -> dict[str, str]:
        """What was given when the partitioned topic was created."""
        stored = await self._environment.metadata.get(_partitioned_key(name))
        return {} if stored is None else dict(json.loads(stored.value).get("properties") or {})

    async def partitions_or_create(self, name: TopicName, *, create: bool) -> int:
        """The answer to PARTITIONED_METADATA: where topics are created partitioned, asking creates them."""
        if not self.namespaces.exists(name.namespace):
            raise TopicNotFound("Namespace not found")
        if str(name) in self.topics:
            return 0
        count = await self.partitions(name)
        if count or (name.is_persistent and await self._ledger_exists(name)):
            return count
        if name.partition >= 0 and (siblings := await self.partitions(name.base)):
            if name.partition < siblings:
                return 0
            raise TopicNotFound("")
        if not create or not self.may_create(name.namespace):
            raise TopicNotFound("")
        wanted = self._auto_partitions(name.namespace)
        if wanted and name.partition < 0:
            await self.create_partitioned(name, wanted)
        return wanted if name.partition < 0 else 0

    async def create_partitioned(
        self, name: TopicName, count: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """`properties` are kept for whoever asks.

        AlreadyExists when there is a topic of that name; NotAllowed for a count out of range.
        """
        self._check_partitions(count)
        if name.partition >= 0:
            raise InvalidTopicName(f"{name} is the name of a partition")
        if not self.namespaces.exists(name.namespace):
            raise TopicNotFound("Namespace not found")
        if await self.exists(name):
            raise AlreadyExists("This topic already exists")
        metadata: dict[str, object] = {"partitions": count}
        if properties:
            metadata["properties"] = dict(properties)
        value = json.dumps(metadata).encode()
        await self._environment.metadata.put(_partitioned_key(name), value, ABSENT)
        self._partitions[str(name)] = count
        await self._create_partitions(name, range(count))

    async def _create_partitions(self, name: TopicName, indexes: range) -> None:
        if name.is_persistent:
            await asyncio.gather(*(self.get(name.with_partition(i), create=True) for i in indexes))

    async def grow_partitioned(self, name: TopicName, count: int) -> None:
        """More partitions; existing subscriptions are created on the new ones too."""
        self._check_partitions(count)
        before = await self.partitions(name)
        if not before:
            raise TopicNotFound(f"Partitioned topic {name} does not exist")
        if count < before:
            raise NotAllowed(f"Number of new partitions must not be below the existing {before}")
        metadata = {"partitions": count, "properties": await self.partitioned_properties(name)}
        await self._environment.metadata.put(_partitioned_key(name), json.dumps(metadata).encode())
        self._partitions[str(name)] = count
        await self._create_partitions(name, range(before, count))
        await self._copy_subscriptions(name, range(before, count))

    async def _copy_subscriptions(self, name: TopicName, indexes: range) -> None:
        if not name.is_persistent:
            return
        first = await self.get(name.with_partition(0), create=True)
        assert isinstance(first, PersistentTopic)
        durable = [subscription.name for subscription in first.subscriptions.values() if subscription.durable]
        for index in indexes:
            topic = await self.get(name.with_partition(index), create=True)
            assert isinstance(topic, PersistentTopic)
            for subscription in durable:
                if subscription not in topic.subscriptions:
                    await topic.create_subscription(subscription, EARLIEST)

    def _check_partitions(self, count: int) -> None:
        most = self.settings.partitions_max
        if count < 1 or (most and count > most):
            raise NotAllowed(f"Number of partitions must be from 1 to {most or 'any number'}, not {count}")

    async def delete_partitioned(self, name: TopicName, *, force: bool) -> None:
        count = await self.partitions(name)
        if not count:
            raise TopicNotFound(f"Partitioned topic {name} does not exist")
        for index in range(count):
            partition = name.with_partition(index)
            if await self.exists(partition):
                await self.delete(partition, force=force)
        await self._environment.metadata.delete(_partitioned_key(name))
        self._partitions.pop(str(name), None)

    # Life

    async def unload(self, name: TopicName) -> None:
        """Close the topic; clients look it up and open it again."""
        topic = self.topics.get(str(name))
        if topic is None:
            raise TopicNotFound(f"Topic {name} is not loaded")
        leaving = self._leaving.get(str(name)) or self._leave(topic, topic.close())
        await asyncio.shield(leaving)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """MetadataError (412) while clients are connected, unless forced."""
        topic = await self.get(name, create=False)
        subscriptions = getattr(topic, "subscriptions", {}).values()
        connected = len(topic.access.producers) + sum(len(s.consumers) for s in subscriptions)
        if connected and not force:
            raise TopicBusy(f"Topic has {connected} connected producers/consumers")
        work = topic.delete() if isinstance(topic, PersistentTopic) else topic.close()
        await asyncio.shield(self._leave(topic, work))
        self._announce(name, exists=False)

    async def close(self) -> None:
        """What cannot be written is logged; the next start recovers it."""
        self.closed = True
        await asyncio.gather(*self._loading.values(), *self._leaving.values(), return_exceptions=True)
        closing = [self._leave(topic, topic.close()) for topic in list(self.topics.values())]
        await asyncio.gather(*closing, return_exceptions=True)
        self.topics.clear()

    # Listing

    async def names(
        self, namespace: str, *, persistent: bool = True, non_persistent: bool = True
    ) -> list[str]:
        """Full names of the namespace's topics, partitions one by one, sorted."""
        found: set[str] = set()
        if persistent:
            found.update(await self._stored_names(namespace))
        for topic in self.topics.values():
            wanted = persistent if topic.name.is_persistent else non_persistent
            if wanted and topic.name.namespace == namespace and not topic.closed:
                found.add(str(topic.name))
        return sorted(found)

    async def _stored_names(self, namespace: str) -> list[str]:
        locals_ = await self._environment.metadata.children(f"{LEDGERS_ROOT}/{namespace}/{PERSISTENT}")
        return [f"{PERSISTENT}://{namespace}/{TopicName.local_from_ledger_name(last)}" for last in locals_]

    async def partitioned_names(self, namespace: str, domain: str = PERSISTENT) -> list[str]:
        names = await self._environment.metadata.children(f"{PARTITIONED_ROOT}/{domain}/{namespace}")
        return sorted(f"{domain}://{namespace}/{unquote(name)}" for name in names)

    def watch(self, watcher: TopicEvent) -> Callable[[], None]:
        """Hear of topics that come and go; answers how to stop."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _announce(self, name: TopicName, *, exists: bool) -> None:
        for watcher in list(self._watchers):
            watcher(name, exists)


class TopicBusy(MetadataError):
    status = 412


def _partitioned_key(name: TopicName) -> str:
    return f"{PARTITIONED_ROOT}/{name.domain}/{name.namespace}/{quote(name.local, safe='')}"
