"""TopicRegistry: all open and dormant topics of this broker; opens a topic at the first request for it.

Law: a topic is opened once and closed once. Requests that come while it is opened wait for the same opening; requests that
come while it is closed or deleted wait for the end of that and open it again. Only its owner opens it (`TopicOwnership`).

    producer, consumer, admin, lookup of a dormant one -> get -> ManagedLedger.open -> PersistentTopic
    broker stop, unload, delete, a fenced log -> PersistentTopic.close
    no client for a while -> fall_asleep -> PersistentTopic.close, and a record in `dormant`
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.settings import ManagedLedgerSettings, OffloadRules
from broker.service.compaction.topic_compaction import Compactor
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.limits.resource_groups import ResourceGroups
from broker.service.namespaces.namespaces import Namespaces
from broker.service.namespaces.partitioned_metadata import PartitionedMetadata
from broker.service.namespaces.stored_forms import DELETED
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.table import MAX_TOPICS
from broker.service.settings import ServiceSettings
from broker.service.successor import Successor
from broker.service.topics.dormant_topic import restore
from broker.service.topics.dormant_topics import OPENED, DormantTopics
from broker.service.topics.ended_topics import EndedTopics
from broker.service.topics.namespace_names import names_of, without_system
from broker.service.topics.non_persistent_topic import NonPersistentTopic
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic, check_domain, check_unused
from broker.service.topics.topic_events import TopicEvents
from broker.service.topics.topic_ownership import TopicOwnership
from broker.service.topics.topic_schemas import TopicSchemas, schemas_of
from broker.service.transactions.coordinators import Coordinators
from foundation.loop.clock import CallLater
from foundation.loop.slices import Slice, in_slices
from foundation.model.errors import BrokerError, NotAllowed, ServiceNotReady, TopicNotFound
from foundation.model.time_histogram import TimeHistogram
from foundation.model.topic_name import TopicName, check_new_name, parse_topic_name

if TYPE_CHECKING:
    from broker.service.topics.shadows import Shadows

log = logging.getLogger("magnetar")

CLOSINGS_AT_ONCE = 50
"""Topics that close together: their first steps fall into one turn of the loop, 40 µs each, and their writes share commits
of the metadata store."""
LOAD_TIMES_KEPT = 10_000
"""Durations of openings that are remembered, the newest ones."""
QUOTA_CHECK_BOUNDS_NS = tuple(seconds * 1_000_000_000 for seconds in (5, 10, 30, 60, 300))
"""Upper bounds of the buckets for durations of quota comparisons, those of Pulsar."""


class TooManyTopics(NotAllowed):
    """The namespace has as many topics as its policy allows."""

    status = 412
    """HTTP status of the answer."""


class TopicRegistry:
    """Opens, closes, deletes and lists topics."""

    def __init__(
        self,
        environment: ManagedLedgerEnvironment,
        ledger_settings: ManagedLedgerSettings,
        settings: ServiceSettings,
        namespaces: Namespaces,
        *,
        ownership: TopicOwnership,
        call_later: CallLater,
        compactor: Compactor,
    ) -> None:
        self.settings = settings
        """Current values, renewed by `reconfigure`."""
        self.namespaces = namespaces
        """Tenants, namespaces and their policies."""
        self.ownership = ownership
        """Says which broker serves a topic."""
        self.policies = EffectivePolicies(namespaces, settings)
        """Limits and permissions of all topics."""
        self.limits = BrokerLimits(settings, now_ns=environment.now_ns, call_later=call_later)
        """Limits over all topics together."""
        self.resource_groups = ResourceGroups(environment.metadata, namespaces, self.limits)
        """Limits over all topics of several namespaces."""
        namespaces.listener = self
        self._policy_changes = 0
        self.partitions = PartitionedMetadata(environment.metadata)
        """Counts of partitions."""
        self.schemas = TopicSchemas(schemas_of(environment), self.policies)
        """Schemas of topics."""
        self.check_open: Callable[[TopicName], Awaitable[None]] = _is_never_deleted
        """Raises an error for a topic whose deletion is decided; `Deletions` sets it."""
        self.events = TopicEvents()
        """Tells of topics that are created and deleted."""
        self.topics: dict[str, Topic] = {}
        """Open topics by full name; `_of_namespace` has them, too."""
        self.dormant = DormantTopics(self.policies, environment, call_later, partial(offload_rules_of, self))
        """Records of the topics that are dormant."""
        self.loads = 0
        """Topics opened since the start."""
        self.load_times_ms: deque[float] = deque(maxlen=LOAD_TIMES_KEPT)
        """Durations of the last openings."""
        self.quota_checks = TimeHistogram(QUOTA_CHECK_BOUNDS_NS)
        """Durations of the comparisons of all backlogs with their quotas, since the start."""
        self.closed = False
        """True once the broker stops; no topic is opened any more."""
        self.transaction_states: Coordinators | None = None
        """The transaction coordinators; None while the broker runs without them."""
        self.environment, self.now_ns = environment, environment.now_ns
        """Shared by all managed ledgers; its monotonic clock is for walks over topics, too (`foundation/loop/slices.py`)."""
        self._ledger_settings, self._call_later = ledger_settings, call_later
        self._compactor = compactor
        # One object: each topic would keep a bound method of its own.
        self._on_fenced = self._close_fenced
        self._opening: dict[str, asyncio.Task[Topic]] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        self.ended = EndedTopics(self.now_ns)
        """Topics that were closed a short while ago."""
        self._of_namespace: dict[str, dict[str, Topic]] = {}

    @cached_property
    def shadows(self) -> Shadows:
        """Shadow topics and their sources."""
        from broker.service.topics.shadows import Shadows

        return Shadows(self, self.environment, self._call_later, self._opening)

    # Opening

    async def get(self, name: TopicName, *, create: bool, by_admin: bool = False) -> Topic:
        """Returns the topic, opened if need be.

        TopicNotFound when it does not exist and may not be created; ServiceNotReady of another broker, or being deleted.
        `by_admin` creates it also where automatic creation is off.
        """
        while True:
            if (topic := self.topics.get(str(name))) is not None and not topic.closed:
                await self.check_open(name)  # A decided deletion takes later messages along.
                if not topic.closed:
                    topic.asked += 1
                    return topic
            task = self._opening.get(str(name))
            if task is not None and task.done():
                # It stays in the table until its callback runs. To await it does not yield: repeating its failure would
                # keep the loop busy for ever, and the callback would never run.
                task = None
            begun_here = task is None
            if task is None:
                task = asyncio.ensure_future(self._open(name, create=create, by_admin=by_admin))
                self._opening[str(name)] = task
                task.add_done_callback(partial(self._opened, str(name)))
            try:
                # Shielded: a client that disconnects must not cancel the opening that others wait for.
                await asyncio.shield(task)
            except TopicNotFound:
                # The request that began the opening may have lacked the right to create it; this one may have it.
                if begun_here or not create:
                    raise

    def _opened(self, name: str, task: asyncio.Task[Topic]) -> None:
        if self._opening.get(name) is task:
            del self._opening[name]
        if not task.cancelled():
            # Marks an error as seen: asyncio would log it when all waiting requests were cancelled.
            task.exception()

    async def _open(self, name: TopicName, *, create: bool, by_admin: bool) -> Topic:
        while (closing := self._closing.get(str(name))) is not None:
            await asyncio.wait((closing,))
        if self.closed:
            raise ServiceNotReady("The broker is shutting down")
        check_domain(name, self.settings)
        lease = await self.ownership.check_owned(name)
        await self.check_open(name)
        await self.shadows.end_following(name)
        started_ns, key = self.environment.now_ns(), str(name)
        from broker.service.topics.topic_opener import TopicOpener, read_stored

        record = self.dormant.get(key)
        stored = await read_stored(name, record, self.environment, self.partitions)
        if stored.nodes is None:
            # Of a record that another broker has made untrue.
            self.dormant.drop(key)
            record, count = None, stored.partitioned.partitions
            await self._check_may_create(name, count, create=create, by_admin=by_admin)
        await self.namespaces.stored.of_topics.load(name)
        if not name.is_persistent:
            changed = self.environment.changed
            topic: Topic = NonPersistentTopic(name, self.settings, self.policies, self.limits, changed)
        else:
            opener = TopicOpener(
                self.environment,
                self.policies,
                self.limits,
                self.shadows,
                self._call_later,
                self._compactor,
                self._on_fenced,
            )
            settings, states = self.ledger_settings_of(name), self.transaction_states
            topic = await opener.open(name, stored, lease, settings, states)
        # Settings may have changed while the topic was opened, and policies, again while they are applied.
        self._reconfigure_topic(topic)
        changes = -1
        while changes != self._policy_changes:
            changes = self._policy_changes
            await topic.policies_changed()
        topic.used_at_ns = self.environment.now_ns()
        if record is not None and isinstance(topic, PersistentTopic):
            await restore(topic, record)
        if topic.closed:
            raise ServiceNotReady(f"Topic {name} was taken over by another broker while it was opened")
        # Only now: a topic that cannot be opened stays dormant.
        self.dormant.drop(key)
        self.topics[key] = topic
        self._of_namespace.setdefault(name.namespace, {})[key] = topic
        self.environment.note_opened(name.ledger_name)
        self.dormant.note_long_lived(OPENED)
        self.loads += 1
        self.load_times_ms.append((self.environment.now_ns() - started_ns) / 1e6)
        if stored.nodes is None:
            self.events.announce(name, exists=True)
        self.shadows.opened(topic)
        return topic

    async def make(self, name: TopicName, store: Callable[[], Coroutine[object, object, None]]) -> None:
        """Runs `store`, which stores a topic that nobody opens meanwhile; does nothing for one that is open.

        Opens the topic where a client was quicker, and after a deletion that goes on. Raises BrokerError.
        """
        key = str(name)
        if self.closed:
            raise ServiceNotReady("The broker is shutting down")
        if key in self._opening or key in self._closing:
            await self.get(name, create=True)
        elif key not in self.topics:
            await asyncio.shield(self._begin_closing(key, None, store()))

    async def _check_may_create(self, name: TopicName, count: int, *, create: bool, by_admin: bool) -> None:
        namespaces, namespace = self.namespaces, name.namespace
        # One that is being deleted would never become empty.
        if (
            not namespaces.exists(namespace)
            or namespaces.is_ending(namespace)
            or namespaces.policy(namespace, DELETED)
        ):
            raise TopicNotFound("Namespace not found")
        if name.partition >= 0:
            if count and name.partition >= count:
                raise TopicNotFound(f"Topic partition {name} does not exist: the topic has {count}")
            if count:
                return
            # As Apache since 4.1: such a topic would be taken for a partition once its base has partitions.
            raise NotAllowed(f"Partition metadata not found for the partitioned topic: {name}")
        if count:
            raise NotAllowed(f"Partitioned topic {name} has {count} partitions; use one of them")
        if not create or not (by_admin or self.policies.may_create_topics(name.namespace)):
            raise TopicNotFound(f"Topic {name} does not exist")
        check_new_name("Topic", name.local)
        if name.is_persistent and not name.is_system:
            await self.check_topics_max(name.namespace, 1)

    async def check_topics_max(self, namespace: str, more: int) -> None:
        """Raises TooManyTopics when the namespace may not have so many persistent topics more."""
        limit = self.policies.of_namespace(namespace, MAX_TOPICS)
        if limit and len(without_system(await self.names(namespace, non_persistent=False))) + more > limit:
            raise TooManyTopics(f"Exceed maximum number of topics in namespace {namespace}: {limit}")

    def _close_fenced(self, topic: PersistentTopic) -> None:
        if not topic.closed:
            log.warning("! %s was taken over by another broker; it is closed until asked for", topic.name)
            self._close_topic(topic)

    def _close_topic(self, topic: Topic) -> asyncio.Task[None]:
        return self._begin_closing(str(topic.name), topic, topic.close())

    def _begin_closing(
        self, name: str, topic: Topic | None, work: Coroutine[object, object, None]
    ) -> asyncio.Task[None]:
        """Runs `work`, which closes, deletes or stores the topic; until it has ended the topic is not opened."""
        if topic is not None:
            # At once, not when the task begins: no client may use the topic from here on.
            topic.closed = True
            if isinstance(topic, PersistentTopic) and topic.ledger.shadows:
                work = self.shadows.close_first(topic, work)
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._closing[name] = task
        task.add_done_callback(partial(self._closing_ended, name, topic))
        return task

    def _closing_ended(self, name: str, topic: Topic | None, task: asyncio.Task[None]) -> None:
        del self._closing[name]
        if topic is not None and self.topics.get(name) is topic:
            del self.topics[name]
            namespace = topic.name.namespace
            del self._of_namespace[namespace][name]
            if not self._of_namespace[namespace]:
                del self._of_namespace[namespace]
            self.environment.changed.note(topic.name.ledger_name)
            self.ended.add(topic)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning("! closing %s: %s", name, error)
        if not self.closed:
            self.dormant.note_missing(name, failed=error is not None)

    # Settings and policies

    def reconfigure(self, ledger_settings: ManagedLedgerSettings, settings: ServiceSettings) -> None:
        """Takes new settings for later topics now, and for those that are open in slices, the first one now."""
        before = self.settings, self._ledger_settings.offload
        self.settings, self._ledger_settings = settings, ledger_settings
        # One object for all topics, so open topics see the new limits without being told.
        self.policies.settings = settings
        # Before the topics, which look which of these limits are in force.
        self.limits.reconfigure(settings)
        self._reconfigure_slice(iter(list(self.topics.values())))
        self.dormant.reconfigure(before, (settings, ledger_settings.offload))

    def _reconfigure_slice(self, topics: Iterator[Topic]) -> None:
        # Each topic takes the settings of the moment, so the slices of two changes may overlap.
        part = Slice(self.now_ns)
        for topic in topics:
            if not topic.closed:
                self._reconfigure_topic(topic)
            if part.is_over():
                self._call_later(0, partial(self._reconfigure_slice, topics))
                return

    def _reconfigure_topic(self, topic: Topic) -> None:
        topic.reconfigure(self.settings)
        if isinstance(topic, PersistentTopic):
            topic.ledger.reconfigure(self.ledger_settings_of(topic.name))

    def ledger_settings_of(self, name: TopicName) -> ManagedLedgerSettings:
        """Returns the settings of the topic's managed ledger, by its policies."""
        return self.policies.ledger_settings(name, self._ledger_settings)

    async def namespace_changed(self, namespace: str) -> None:
        """Applies the policies of a namespace to its open topics. Raises the first error, after the last topic."""
        self.dormant.plan_all(self.dormant.names(namespace))
        await self._apply(self.open_in(namespace))

    async def topic_changed(self, topic: str) -> None:
        """Applies the policies of a topic to its open parts. Raises the first error, after the last part."""
        name = parse_topic_name(topic)
        names = [name, *(name.with_partition(index) for index in range(await self.partitions.count(name)))]
        self.dormant.plan_all([str(one) for one in names])
        # By name, not by looking at all topics: there may be many thousands of them.
        await self._apply([self.topics[str(one)] for one in names if str(one) in self.topics])

    async def _apply(self, topics: list[Topic]) -> None:
        self._policy_changes += 1
        errors = []
        async for topic in in_slices(topics, self.now_ns):
            if not topic.closed:
                try:
                    await topic.policies_changed()
                    if isinstance(topic, PersistentTopic):
                        topic.ledger.reconfigure(self.ledger_settings_of(topic.name))
                except BrokerError as error:
                    log.warning("! policies of %s: %s", topic.name, error)
                    errors.append(error)
        if errors:
            raise errors[0]

    # Closing

    async def unload(self, name: TopicName, successor: Successor | None = None) -> None:
        """Closes the topic; clients open it again, where the successor is. TopicNotFound unless it is open."""
        topic = self.topics.get(str(name))
        if topic is None:
            raise TopicNotFound(f"Topic {name} is not loaded")
        topic.successor = successor
        await asyncio.shield(self._closing.get(str(name)) or self._close_topic(topic))

    async def fall_asleep(self, topic: PersistentTopic, oldest_ms: int) -> None:
        """Closes a topic without clients and keeps its record; `oldest_ms` as in `record_of`. Raises MetadataError."""
        closing = self._begin_closing(str(topic.name), topic, self.dormant.close(topic, oldest_ms))
        await asyncio.shield(closing)

    async def shut(
        self,
        name: TopicName,
        work: Callable[[], Awaitable[None]],
        *,
        force: bool,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Closes a topic for ever and disconnects its clients, then runs `work`; only then it may be opened again.

        Does nothing if `wanted` returns False after the wait for another opening or closing of the topic.
        TopicBusy while clients are connected, unless forced; TopicNotFound for a non-persistent topic that is not open.
        """
        key = str(name)
        while (running := self._opening.get(key) or self._closing.get(key)) is not None:
            await asyncio.wait((running,))
        # No await from here to `_begin_closing`: no client may come in between.
        if self.closed:
            raise ServiceNotReady("The broker is shutting down")
        if wanted is not None and not wanted():
            return
        self.dormant.drop(key)
        topic = self.topics.get(key)
        if topic is None and not name.is_persistent:
            raise TopicNotFound(f"Topic {name} does not exist")
        if topic is not None and not force:
            check_unused(topic)
        # Shielded: a client that disconnects must not stop a deletion half way.
        await asyncio.shield(self._begin_closing(key, topic, self._shut(name, topic, work)))
        self.dormant.missing.discard(key)

    async def _shut(self, name: TopicName, topic: Topic | None, work: Callable[[], Awaitable[None]]) -> None:
        if topic is not None:
            await topic.abandon()
        await work()
        self.events.announce(name, exists=False)

    def is_settled(self, name: TopicName) -> bool:
        """Returns True for a topic that is not open, and neither being opened, nor closed, nor deleted."""
        key = str(name)
        return key not in self.topics and key not in self._opening and key not in self._closing

    def open_in(self, namespace: str) -> list[Topic]:
        """Returns the open topics of a namespace, in a list of the caller's own."""
        return list(self._of_namespace.get(namespace, {}).values())

    async def openings_ended(self, namespace: str) -> None:
        """Waits for the topics of a namespace that are being opened at this moment."""
        tasks = [one for name, one in self._opening.items() if parse_topic_name(name).namespace == namespace]
        if tasks:
            # Not `gather`: a cancelled caller would cancel the openings, which clients wait for.
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Closes all topics. Failures are logged; the next start recovers what could not be written."""
        self.closed = True
        # Openings end first, so that the topics they bring are among those closed below.
        await asyncio.gather(*self._opening.values(), *self._closing.values(), return_exceptions=True)
        topics = iter(list(self.topics.values()))
        while some := list(islice(topics, CLOSINGS_AT_ONCE)):
            closing = [self._closing.get(str(topic.name)) or self._close_topic(topic) for topic in some]
            await asyncio.gather(*closing, return_exceptions=True)
        self.shadows.close()
        self.topics.clear()
        self._of_namespace.clear()
        await self.dormant.forget_all()

    # Listing

    async def is_stored(self, name: TopicName) -> bool:
        """Returns True when the metadata store has a log for the topic; a record of one without a log is dropped."""
        if not name.is_persistent:
            return False
        key = managed_ledger_key(name.ledger_name)
        return await self.environment.metadata.get(key) is not None or await self.dormant.is_confirmed(name)

    async def exists(self, name: TopicName) -> bool:
        """Returns True for an open, stored or partitioned topic, or a partition."""
        if str(name) in self.topics or await self.is_stored(name):
            return True
        return await self.partitions.count(name.base) > max(0, name.partition)

    async def names(
        self, namespace: str, *, persistent: bool = True, non_persistent: bool = True
    ) -> list[str]:
        """Returns full names of topics and partitions: persistent ones first, each kind sorted, as Pulsar lists them.

        Non-persistent topics are listed while they are open here.
        """
        return await names_of(
            self.environment,
            namespace,
            partial(self.open_in, namespace),
            persistent=persistent,
            non_persistent=non_persistent,
        )


async def _is_never_deleted(_name: TopicName) -> None:
    """Stands for `TopicRegistry.check_open` in a registry without deletions."""


def offload_rules_of(registry: TopicRegistry, name: TopicName) -> OffloadRules:
    """Returns the rules for copies of a topic's ledgers, by its policies."""
    return registry.policies.offload_rules(name, registry._ledger_settings.offload)
