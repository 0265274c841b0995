"""PolicyEvents: policies of topics as Apache Pulsar 4.2 keeps them, for stores that such a broker may share.

The policies of a namespace's topics are events in its topic `__change_events` (`topic_events.py`). They are read before the
first topic of the namespace is opened; while they cannot be read, none is. Policies that Pulsar does not have stay in
documents of the metadata store.

A change: wait until no other broker makes one (`event_locks.py`); open the topic, which takes it from a broker that had it;
read what that broker left; add one event; read it; note its position in the list of ledgers. Other brokers watch that list,
and read the event without opening the topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from bookkeeper.metadata.metadata_store import Stop
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.schemas.avro_schema import AvroType
from broker.schemas.encoding import Unencodable, encode
from broker.service.namespaces.namespaces import GLOBAL
from broker.service.namespaces.stored_forms import Document
from broker.service.namespaces.stored_policies import TopicPolicies, TopicPolicyDocuments
from broker.service.policies.event_locks import EventLocks
from broker.service.policies.forms import PolicyRefused
from broker.service.policies.pulsar_event import EVENT_SCHEMA
from broker.service.policies.topic_events import (
    EVENT_TYPE,
    EventKey,
    document_of,
    event_of,
    events_topic,
    has_fields,
    is_in_events,
    no_policies,
    partition_of,
    with_value,
)
from broker.service.topics.event_log import LAST_EVENT, EventLog, Gone
from broker.service.topics.event_producer import publish
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.policy_nodes import PolicyNode, namespaces_with_nodes, nodes_of
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.shared_work import SharedWork
from foundation.model.errors import (
    BadVersion,
    BrokerError,
    LedgerFenced,
    PersistenceError,
    ServiceNotReady,
    TopicNotFound,
)
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.value import Json

log = logging.getLogger("magnetar")

_ATTEMPTS: Final = 5
"""Attempts at a change, or at a read under the lock; a broker without our locks, such as Apache's, may end each."""
_RETRY_S: Final = 1.0
"""Seconds after a failed read of changes until the next one."""


class _Events:
    """The events of one namespace."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held by a read and by a change."""
        self.logs: dict[TopicName, EventLog] = {}
        """By the topic with the events; several where it has partitions."""
        self.stops: dict[TopicName, Stop] = {}
        """Ends of the watches of these topics."""
        self.loaded = False
        """True once everything was read."""

    def of(self, topic: str) -> Document:
        """Returns the policies of a topic."""
        found: Document = {}
        for events in self.logs.values():
            for is_global in (True, False):
                stored = events.stored.get(EventKey(topic, is_global))
                if stored is not None:
                    found |= document_of(stored.fields, is_global=is_global)
        return found

    def topics(self) -> set[str]:
        """Returns the topics that have policies."""
        return {key.topic for events in self.logs.values() for key in events.stored}


class PolicyEvents(TopicPolicies):
    """Reads, follows and adds the events of all namespaces in use."""

    def __init__(self, registry: TopicRegistry, environment: ManagedLedgerEnvironment) -> None:
        """Keeps the policies of the registry's topics from now on."""
        self._registry = registry
        self._environment = environment
        self._own = TopicPolicyDocuments(registry.namespaces.stored.topic_policies)
        self._locks = EventLocks(environment.metadata, lambda: registry.ownership.owner.broker_id)
        self._events: dict[str, _Events] = defaultdict(_Events)
        self._loads = SharedWork()
        """The first reads that go on, by namespace."""
        self._documents: dict[str, Document] = {}
        """The policies that follow from the events, by topic."""
        self._sequence_id = environment.wall_ms()
        """Begins with the time, so that it rises over restarts."""
        self._due: dict[str, None] = {}
        """Namespaces that may have changed."""
        self._with_nodes: set[str] = set()
        """Namespaces with policies in nodes that are not taken over yet."""
        self._untold: dict[str, None] = {}
        """Topics with changed policies of which the registry does not know."""
        self._follower: asyncio.Task[None] | None = None
        self._closed = False
        registry.namespaces.stored.of_topics = self

    def of(self, topic: str) -> Mapping[str, Json]:
        """Returns what is in events and in documents."""
        own, events = self._own.of(topic), self._documents.get(topic)
        if not events:
            return own
        return {**own, **events} if own else events

    async def load(self, name: TopicName) -> None:
        """Reads the events of the topic's namespace, unless that was done. Raises BrokerError; may be tried again then.

        Does nothing for the topic with the events, which this opens.
        """
        namespace = name.namespace
        is_loaded = namespace in self._events and self._events[namespace].loaded
        if not is_loaded and not name.has_policy_events and self._registry.namespaces.exists(namespace):
            # One for all topics that open now: a restart opens thousands.
            await self._loads.done(namespace, partial(self._load, namespace))

    async def _load(self, namespace: str) -> None:
        events = self._events[namespace]
        await self._read_anew(namespace, events)
        if namespace in self._with_nodes or self._own.in_namespace(namespace):
            async with self._locks.hold(namespace, bounded=False), events.lock:
                await self._take_over(namespace, events)
        events.loaded = True

    async def take_over(self) -> None:
        """Moves into events the documents of versions up to 0.2.0, and policies that Pulsar 5.0 keeps in nodes.

        A failure is logged: `load` tries again. Raises MetadataError.
        """
        self._with_nodes = set(await namespaces_with_nodes(self._environment.metadata))
        documents = self._own.documents.values
        names = [
            parse_topic_name(topic) for topic, found in documents.items() if any(map(is_in_events, found))
        ]
        for namespace in sorted({name.namespace for name in names} | self._with_nodes):
            try:
                # Any topic of the namespace loads it.
                await self.load(parse_topic_name(f"persistent://{namespace}/any"))
            except BrokerError as error:
                log.warning("! policies of topics of %s are not moved yet: %s", namespace, error)

    async def _take_over(self, namespace: str, events: _Events) -> None:
        if namespace in self._with_nodes:
            for node in await nodes_of(self._environment.metadata, namespace):
                # A topic that has an event was changed since, perhaps by an earlier attempt at this.
                try:
                    if not any(node.key in kept.stored for kept in events.logs.values()):
                        await self._attempt(partial(self._add_node, node, events), events)
                except PolicyRefused as error:
                    log.error("! %s is not taken over: %s", node.path, error)
                    continue
                await self._environment.metadata.delete(node.path)
                log.info("%s is in %s now", node.path, events_topic(namespace))
            self._with_nodes.discard(namespace)
        for topic in self._own.in_namespace(namespace):
            # Read after the events: another broker that starts may have moved them.
            found = await self._own.documents.read(topic) or {}
            if not any(map(is_in_events, found)):
                continue
            fitting = {key: value for key, value in found.items() if _fits(topic, key, value)}
            joined = partial(self._joined, topic, fitting)
            try:
                await self._attempt(partial(self._change, topic, events, joined), events)
            except PolicyRefused as error:
                # The document stays in force.
                log.error("! policies of %s are not taken over: %s", topic, error)
                continue
            log.info("policies of %s are in %s now", topic, events_topic(namespace))

    async def _add_node(self, node: PolicyNode, events: _Events) -> None:
        opened = await self._caught_up(node.key, events, create=True)
        assert opened is not None
        payload, version = await self._encoded(node.key, opened.name, node.fields)
        await self._add(node.key, events, opened, payload, version)

    def _joined(self, topic: str, values: Document, _: Document | None) -> Document:
        return {**self._documents.get(topic, {}), **values}

    # Reading

    async def _read_anew(self, namespace: str, events: _Events) -> None:
        """Reads all events, without the lock of changes: a topic must open although its holder hangs or was killed."""
        try:
            async with events.lock:
                await self._read_all(namespace, events)
        except (LedgerFenced, ServiceNotReady, BadVersion):
            # Nearly always another broker has opened the topic meanwhile. In turn they do not end each other's openings.
            async with self._locks.hold(namespace, bounded=False), events.lock:
                # One that begins without the lock may still end an attempt.
                await self._attempt(partial(self._read_all, namespace, events), events)

    async def _read_all(self, namespace: str, events: _Events) -> None:
        logs: dict[TopicName, EventLog] = {}
        for name in await self._names(namespace):
            if name not in events.stops:
                # Watched first, so that no change falls between.
                key = managed_ledger_key(name.ledger_name)
                events.stops[name] = await self._environment.metadata.watch(
                    key, partial(self._value_changed, namespace)
                )
            logs[name] = EventLog(name, self._environment, self._registry.schemas)
            topic = await self._opened(name, create=False)
            if topic is not None:
                await logs[name].catch_up(topic)
        before, events.logs = events.topics(), logs
        self._note(events, before | events.topics())

    async def _names(self, namespace: str) -> list[TopicName]:
        name = events_topic(namespace)
        count = await self._registry.partitions.count(name)
        return [name.with_partition(index) for index in range(count)] or [name]

    async def _opened(self, name: TopicName, *, create: bool) -> PersistentTopic | None:
        """Returns the topic, opened anew where another broker has taken it; None while there is none."""
        before = self._registry.topics.get(str(name))
        if isinstance(before, PersistentTopic):
            found = await self._environment.metadata.get(managed_ledger_key(name.ledger_name))
            if found is None or found.version != before.ledger.context.store.version:
                await self._close(name)
        try:
            topic = await self._registry.get(name, create=create, by_admin=True)
        except TopicNotFound:
            if create:
                raise
            return None
        assert isinstance(topic, PersistentTopic)
        return topic

    def _note(self, events: _Events, changed: set[str]) -> None:
        """Renews the documents of topics whose policies have changed; the registry is told of them."""
        for topic in changed:
            before, found = self._documents.pop(topic, None), events.of(topic)
            if found:
                self._documents[topic] = found
            if found != (before or {}):
                self._untold[topic] = None
        if self._untold:
            self._wake()

    # Following

    def _value_changed(self, namespace: str) -> None:
        self._due[namespace] = None
        self._wake()

    def _wake(self) -> None:
        if self._follower is None and not self._closed:
            self._follower = asyncio.create_task(self._follow(), name="changes of topic policies")

    async def _follow(self) -> None:
        try:
            while self._due or self._untold:
                failed = False
                for namespace in list(self._due):
                    del self._due[namespace]
                    try:
                        await self._read_changes(namespace)
                    except BrokerError as error:
                        log.warning("! policies of topics of %s cannot be read again: %s", namespace, error)
                        self._due[namespace] = None
                        failed = True
                await self._tell()
                if failed:
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._follower = None

    async def _tell(self) -> None:
        while self._untold:
            topic, _ = self._untold.popitem()
            try:
                await self._registry.topic_changed(topic)
            except BrokerError as error:
                log.warning("! policies of %s were changed: %s", topic, error)

    async def _read_changes(self, namespace: str) -> None:
        events = self._events[namespace]
        with contextlib.suppress(Gone):
            async with events.lock:
                for name, kept in events.logs.items():
                    found = await self._environment.metadata.get(managed_ledger_key(name.ledger_name))
                    info = None if found is None else decode_ledger_list(found.value)
                    self._note(events, await kept.follow(info))
            return
        await self._read_anew(namespace, events)

    async def close(self) -> None:
        """Follows the events no longer."""
        self._closed = True
        self._locks.close()
        await self._loads.close()
        for events in self._events.values():
            for stop in events.stops.values():
                stop()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    # Changes

    async def change(self, topic: str, changed: Callable[[Document | None], Document | None]) -> None:
        """Adds an event for local and for global policies that change. Raises BrokerError.

        A policy that is removed alone is one that the next event does not have; `forget` removes all.
        """
        await self._change_alone(topic, changed)

    async def forget(self, topic: str) -> None:
        """Adds the event without a payload for each scope in which the topic has policies. Raises BrokerError."""
        await self._change_alone(topic, None)

    async def _change_alone(
        self, topic: str, changed: Callable[[Document | None], Document | None] | None
    ) -> None:
        name = parse_topic_name(topic)
        await self.load(name)
        # First the lock that brokers share, so that events are followed while this one waits for it.
        async with self._locks.hold(name.namespace, bounded=True), self._events[name.namespace].lock:
            events = self._events[name.namespace]
            await self._attempt(partial(self._change, topic, events, changed), events)

    async def forget_namespace(self, namespace: str) -> None:
        """Removes what is in memory, and the documents. The events have gone with their topic."""
        await self._own.forget_namespace(namespace)
        events = self._events.pop(namespace, None)
        if events is not None:
            for stop in events.stops.values():
                stop()
            for topic in events.topics():
                self._documents.pop(topic, None)
        self._due.pop(namespace, None)
        await self._locks.forget(namespace)

    async def _attempt(self, make: Callable[[], Awaitable[None]], events: _Events) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await make()
            except (PersistenceError, ServiceNotReady, BadVersion) as error:
                # Nearly always another broker has taken the topic, so its events come first.
                if attempt == _ATTEMPTS - 1:
                    raise _told(error) from error
                for name in events.logs:
                    await self._close(name)
            else:
                return

    async def _close(self, name: TopicName) -> None:
        """Closes a topic that another broker has taken, so that it is opened anew."""
        # It cannot store its end: the list is the other broker's.
        with contextlib.suppress(BrokerError):
            await self._registry.unload(name)

    async def _change(
        self,
        topic: str,
        events: _Events,
        changed: Callable[[Document | None], Document | None] | None,
    ) -> None:
        """Makes a change of the newest policies; `changed` None removes all."""
        scopes = (EventKey(topic, False), EventKey(topic, True))
        for create in (False, True):
            topics = {key: await self._caught_up(key, events, create=create) for key in scopes}
            before = self._documents.get(topic, {})
            after = {} if changed is None else changed(dict(self.of(topic)) or None) or {}
            differing = [one for one in {**before, **after} if before.get(one) != after.get(one)]
            wanted = {one.startswith(GLOBAL) for one in differing if is_in_events(one)}
            # A topic that is made now may have been made by another broker, with events.
            if all(topics[key] is not None for key in scopes if key.is_global in wanted):
                break
        for key, opened in topics.items():
            stored = next((kept.stored[key] for kept in events.logs.values() if key in kept.stored), None)
            if opened is None:
                continue
            if changed is None and stored is not None:
                await self._add(key, events, opened, None, stored.version)
            elif key.is_global in wanted:
                kind, version = (EVENT_TYPE, b"") if stored is None else (stored.type, stored.version)
                fields = no_policies(is_global=key.is_global) if stored is None else stored.fields
                for one in differing:
                    if is_in_events(one) and one.startswith(GLOBAL) == key.is_global:
                        fields = with_value(fields, one, after.get(one))
                payload, version = await self._encoded(key, opened.name, fields, kind, version)
                await self._add(key, events, opened, payload, version)
        if self._own.of(topic) or not all(map(is_in_events, after)):
            await self._own.change(topic, partial(self._own_part, topic, changed))

    def _own_part(
        self,
        topic: str,
        changed: Callable[[Document | None], Document | None] | None,
        now: Document | None,
    ) -> Document | None:
        """Returns the document of a topic: the policies that Pulsar does not have, of the newest document."""
        known = {**(now or {}), **self._documents.get(topic, {})}
        after = {} if changed is None else changed(known or None) or {}
        return {one: value for one, value in after.items() if not is_in_events(one)} or None

    async def _encoded(
        self,
        key: EventKey,
        name: TopicName,
        fields: Mapping[str, Json],
        kind: AvroType = EVENT_TYPE,
        version: bytes = b"",
    ) -> tuple[bytes, bytes]:
        """Returns payload and schema version of an event, by the given schema where that has all fields.

        PolicyRefused for a value that Pulsar cannot have.
        """
        if not version or not has_fields(kind, fields):
            kind, version = EVENT_TYPE, await self._registry.schemas.for_producer(name, EVENT_SCHEMA)
        try:
            return encode(kind, event_of(key, fields, self._registry.namespaces.cluster)), version
        except Unencodable as error:
            raise PolicyRefused(str(error)) from None

    async def _add(
        self, key: EventKey, events: _Events, topic: PersistentTopic, payload: bytes | None, version: bytes
    ) -> None:
        """Adds an event, reads it, and notes its position. Raises BrokerError; the event is perhaps stored then.

        `topic` is the opened topic that was read to its end: after an event of another broker it takes no more.
        """
        # As every topic of Pulsar's: without a cursor the ledgers before the current one would be trimmed.
        await topic.compaction_cursor()
        self._sequence_id += 1
        position = await publish(
            topic,
            key,
            payload,
            schema_version=version,
            sequence_id=self._sequence_id,
            now_ms=self._environment.wall_ms(),
            replicate_to=() if key.is_global else (self._registry.namespaces.cluster,),
        )
        self._note(events, await events.logs[topic.name].catch_up(topic))
        # Refused where another broker has opened the topic since: that broker has read the event.
        with contextlib.suppress(BadVersion):
            await topic.ledger.set_properties({LAST_EVENT: f"{position.ledger_id}:{position.entry_id}"})

    async def _caught_up(self, key: EventKey, events: _Events, *, create: bool) -> PersistentTopic | None:
        """Returns the topic with the events of a key, read to its end; None while there is none."""
        name = events_topic(parse_topic_name(key.topic).namespace)
        if count := await self._registry.partitions.count(name):
            name = name.with_partition(partition_of(key.text, count))
        topic = await self._opened(name, create=create)
        if topic is not None:
            if name not in events.logs:
                events.logs[name] = EventLog(name, self._environment, self._registry.schemas)
            self._note(events, await events.logs[name].catch_up(topic))
        return topic


def _told(error: BrokerError) -> BrokerError:
    """Returns what a caller is told of an error that all attempts had."""
    if isinstance(error, BadVersion | LedgerFenced) or type(error) is PersistenceError:
        return ServiceNotReady(
            f"Policies of topics cannot be read or changed now: storage fails or another broker has them. Try again: {error}"
        )
    return error


def _fits(topic: str, key: str, value: Json) -> bool:
    """Returns False for a value without effect, which an event cannot have."""
    if is_in_events(key):
        try:
            with_value({}, key, value)
        except PolicyRefused as error:
            log.error("! %s of %s had no effect and is not taken over: %s", key, topic, error)
            return False
    return True
