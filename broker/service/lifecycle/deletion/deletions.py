"""Deletions: decides deletions, carries them out in a fixed order, and goes on with those that were interrupted.

    decide     one write: the intent, and the mark that forbids the use of the deleted thing
    steps      those of `DeletionSteps`, in order; each can be repeated
    finish     the intent goes last

    topic          the mark is "deleted" in the list of its log
    partitioned    the mark is "deleted" in its metadata
    namespace      the mark is "deleted" in its policies
    others         the intent itself, which `check_open` and `Namespaces.is_ending` obey

A step that fails leaves the intent. `resume` tries again: at the start of a broker and every minute after it, also for
brokers that are gone. Of the brokers on one store only an intent's owner carries it out (`Intents`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from bookkeeper.metadata.metadata_store import Write
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.managed_ledger.removal.deletion import decide_deletion
from broker.service.lifecycle.deletion.intents import DeletedKind, Intent, Intents
from broker.service.lifecycle.deletion.steps import DeletionSteps
from broker.service.namespaces.namespaces import NamespaceNotFound, NotEmpty
from broker.service.namespaces.stored_forms import DELETED
from broker.service.namespaces.stored_policies import ROOT as NAMESPACES_ROOT
from broker.service.topics.namespace_names import without_system
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import BrokerError, MetadataError, ServiceNotReady, TopicNotFound
from foundation.model.topic_name import NON_PERSISTENT, PERSISTENT, TopicName, parse_topic_name

log = logging.getLogger("magnetar")


class Deletions:
    """Deletes topics, namespaces and tenants so that nothing of them stays, whatever ends the broker in between."""

    def __init__(
        self,
        environment: ManagedLedgerEnvironment,
        registry: TopicRegistry,
    ) -> None:
        self.intents = Intents(environment.metadata)
        """Decided deletions that are not finished."""
        self.resumed = 0
        """Deletions of an earlier broker, or failed ones, that were finished since the start."""
        self._environment = environment
        self._namespaces = registry.namespaces
        self._partitions = registry.partitions
        self._registry = registry
        self._running: dict[tuple[DeletedKind, str], asyncio.Task[None]] = {}
        self._resuming = False
        self._asked: Counter[str] = Counter()
        """Requests under way, by tenant or namespace."""
        registry.namespaces.is_ending = self._is_ending
        registry.namespaces.read_endings = self._read_endings
        registry.check_open = self.check_open
        self._steps = DeletionSteps(environment, registry, self.intents, partial(self._namespace, force=True))

    @property
    def oldest_age_s(self) -> float:
        """Seconds since the decision of the oldest deletion that is not finished; 0 without one."""
        now_ms = self._environment.wall_ms()
        oldest_ms = min((intent.decided_ms for intent in self.intents.pending.values()), default=now_ms)
        # A wall clock that was set back must not make the age negative.
        return max(0, now_ms - oldest_ms) / 1000

    # Asked for

    async def topic(self, name: TopicName, *, force: bool) -> None:
        """Deletes a topic or one partition with all that belongs to it alone; a partition has no schema of its own.

        TopicBusy while clients are connected, unless forced; HasShadows for a source of shadow topics; TopicNotFound for a
        missing topic; MetadataError.
        """
        await self._registry.shadows.check_deletable(name)
        await self._registry.shut(name, partial(self._topic_shut, name), force=force)

    async def _topic_shut(self, name: TopicName) -> None:
        decide = partial(self._decide_topic, name)
        await self._decide_and_carry_out((DeletedKind.TOPIC, str(name)), decide)

    async def _decide_topic(self, name: TopicName) -> Intent:
        schema = await self._owns_schema(name)
        intent = Intent(DeletedKind.TOPIC, str(name), self._environment.wall_ms(), schema=schema)
        if not name.is_persistent:
            return await self.intents.decide_alone(intent)

        async def mark(beside: Sequence[Write]) -> None:
            await self._registry.shadows.own_partition(name)
            if not await decide_deletion(name.ledger_name, self._environment.metadata, beside):
                raise TopicNotFound(f"Topic {name} does not exist")

        return await self.intents.decide(intent, mark)

    async def _owns_schema(self, name: TopicName) -> bool:
        """Returns False for a partition, and while the other domain has a topic of the name: it shares the schema."""
        if await self._partitions.count(name.base):
            return False
        other = replace(name, domain=NON_PERSISTENT if name.is_persistent else PERSISTENT)
        return not await self._registry.exists(other)

    async def partitioned(self, name: TopicName, count: int) -> None:
        """Deletes a partitioned topic; disconnects clients of its partitions. After BrokerError it must be repeated.

        HasShadows for a source of shadow topics.
        """
        await self._registry.shadows.check_deletable(name)
        other = replace(name, domain=NON_PERSISTENT if name.is_persistent else PERSISTENT)
        schema = not await self._registry.exists(other)
        intent = Intent(
            DeletedKind.PARTITIONED, str(name), self._environment.wall_ms(), count, schema, marked=True
        )
        mark = partial(self._partitions.mark_deleted, name)
        await self._run(intent, partial(self.intents.decide, intent, mark))

    async def forget_partitioned(self, name: TopicName) -> None:
        """Deletes metadata, schema and policies of a partitioned topic, unless one of its partitions exists."""
        count = await self._partitions.count(name)
        for index in range(count):
            partition = name.with_partition(index)
            if str(partition) in self._registry.topics or await self._registry.is_stored(partition):
                return
        await self.partitioned(name, count)

    async def namespace(self, namespace: str, *, force: bool) -> None:
        """Deletes a namespace, with its topics if forced.

        NamespaceNotFound; NotEmpty for one with topics; HasShadows where shadow topics elsewhere read one of its topics.
        """
        if not self._namespaces.exists(namespace):
            raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
        # From here on no topic is created in it, so an empty namespace stays empty.
        self._asked[namespace] += 1
        try:
            await self._check_sources([namespace], namespace)
            await self._namespace(namespace, force=force)
        finally:
            self._asked[namespace] -= 1

    async def _check_sources(self, namespaces: Sequence[str], deleted: str) -> None:
        for namespace in namespaces:
            for name in await self._registry.names(namespace, non_persistent=False):
                await self._registry.shadows.check_deletable(parse_topic_name(name), deleted)

    async def _namespace(self, namespace: str, *, force: bool) -> None:
        # As above, for the namespaces of a tenant.
        self._asked[namespace] += 1
        try:
            if not force:
                await self._check_empty(namespace)
            intent = Intent(DeletedKind.NAMESPACE, namespace, self._environment.wall_ms())
            mark = partial(self._namespaces.mark_deleted, namespace)
            await self._run(intent, partial(self.intents.decide, intent, mark))
        finally:
            self._asked[namespace] -= 1

    def _is_ending(self, name: str) -> bool:
        """A decided deletion counts until its intent is gone, also after a restart."""
        has = self.intents.has
        return self._asked[name] > 0 or has(DeletedKind.NAMESPACE, name) or has(DeletedKind.TENANT, name)

    async def _read_endings(self, name: str) -> None:
        if self.intents.pending:
            keys = [(DeletedKind.NAMESPACE, name), (DeletedKind.TENANT, name.partition("/")[0])]
            await self.intents.read_again(keys)

    async def _check_empty(self, namespace: str) -> None:
        await self._registry.openings_ended(namespace)
        # Topics of brokers go with the namespace.
        names = [*await self._registry.names(namespace), *await self._partitions.names(namespace)]
        if without_system(names):
            raise NotEmpty("Cannot delete non empty namespace")

    async def tenant(self, tenant: str, *, force: bool) -> None:
        """Deletes a tenant, with its namespaces if forced.

        NamespaceNotFound; NotEmpty for one with namespaces; HasShadows where shadow topics elsewhere read one of its topics.
        """
        if self._environment.metadata.is_shared and self._namespaces.tenant_exists(tenant):
            # Another broker may have made a namespace in it a moment ago, which would stay without its tenant.
            await self._namespaces.stored.policies.read_again()
        if not force or not self._namespaces.tenant_exists(tenant):
            await self._namespaces.delete_tenant(tenant)
            return
        await self._check_sources(self._namespaces.names(tenant), tenant)
        intent = Intent(DeletedKind.TENANT, tenant, self._environment.wall_ms())
        self._asked[tenant] += 1
        try:
            await self._run(intent, partial(self.intents.decide_alone, intent))
        finally:
            self._asked[tenant] -= 1

    # Carried out

    async def _run(self, intent: Intent, decide: Callable[[], Awaitable[Intent]]) -> None:
        """Decides unless that was done, and carries out; a cancelled caller does not end it. Calls of one name share it."""
        key = intent.kind, intent.name
        task = self._running.get(key)
        if task is None:
            task = asyncio.ensure_future(self._decide_and_carry_out(key, decide))
            self._running[key] = task
            task.add_done_callback(partial(self._ended, key))
        await asyncio.shield(task)

    async def _decide_and_carry_out(
        self, key: tuple[DeletedKind, str], decide: Callable[[], Awaitable[Intent]]
    ) -> None:
        pending = self.intents.pending.get(key)
        if pending is None or not await self.intents.is_stored(pending):
            owned = await decide()
        else:
            owned = await self.intents.own(pending)
            if await self._is_marked(owned) is False:
                # It was made anew: the former deletion lacked its last write alone. This one needs a mark of its own.
                await self.intents.finished(owned)
                owned = await decide()
        await self._carry_out(owned)

    def _ended(self, key: tuple[DeletedKind, str], task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled():
            # Marks an error as seen: the caller may have been cancelled, and the intent is there for the next attempt.
            task.exception()

    async def _carry_out(self, intent: Intent) -> None:
        async with self.intents.while_owned(intent):
            for _, step in self._steps.of(intent.kind):
                await step(intent)
            await self.intents.finished(intent)

    # Interrupted

    async def open(self) -> None:
        """Reads the decided deletions; `resume` goes on with them. Raises MetadataError."""
        await self.intents.refresh()

    async def check_open(self, name: TopicName) -> None:
        """Raises TopicNotFound or ServiceNotReady for a topic whose deletion is decided; MetadataError."""
        pending = self.intents.pending
        if not pending:
            return
        await self._read_endings(name.namespace)
        await self.intents.read_again(
            [(DeletedKind.TOPIC, str(name)), (DeletedKind.PARTITIONED, str(name.base))]
        )
        if (DeletedKind.NAMESPACE, name.namespace) in pending:
            raise TopicNotFound("Namespace not found")
        if (DeletedKind.TOPIC, str(name)) in pending or (DeletedKind.PARTITIONED, str(name.base)) in pending:
            raise ServiceNotReady(f"Topic {name} is being deleted; ask again")

    async def resume(self) -> None:
        """Goes on with every decided deletion that no broker carries out. Failures are logged; the next call tries again.

        Returns at once while another call is under way: with a store that hangs, one more would wait each minute.
        """
        if self._resuming:
            return
        self._resuming = True
        try:
            await self._resume_all()
        finally:
            self._resuming = False

    async def _resume_all(self) -> None:
        try:
            await self.intents.refresh()
        except MetadataError as error:
            log.warning("! decided deletions cannot be read: %s", error)
            return
        # In the order of the kinds: a tenant's namespaces may have an intent of their own.
        for intent in sorted(
            self.intents.pending.values(), key=lambda one: list(DeletedKind).index(one.kind)
        ):
            if (intent.kind, intent.name) in self._running or not self.intents.has(intent.kind, intent.name):
                continue
            try:
                owned = await self.intents.own(intent)
            except BrokerError as error:
                # Nearly always another broker carries it out.
                log.debug("the deletion of %s %s: %s", intent.kind, intent.name, error)
                continue
            try:
                await self._resume(owned)
            except BrokerError as error:
                log.warning(
                    "! the deletion of %s %s is not finished and is tried again: %s",
                    intent.kind,
                    intent.name,
                    error,
                )
            else:
                self.resumed += 1
                log.info("finished the deletion of %s %s", intent.kind, intent.name)

    async def _resume(self, intent: Intent) -> None:
        if intent.kind is DeletedKind.TOPIC and (name := parse_topic_name(intent.name)).is_persistent:
            await self._resume_topic(name, intent)
        elif await self._is_over(intent):
            # A request that came meanwhile finishes it.
            if (intent.kind, intent.name) not in self._running:
                await self.intents.finished(intent)
        elif self._is_pending(intent):
            await self._run(intent, partial(self.intents.own, intent))

    async def _resume_topic(self, name: TopicName, intent: Intent) -> None:
        def is_open() -> bool:
            topic = self._registry.topics.get(intent.name)
            return topic is not None and not topic.closed

        # An open topic was made anew, unless another broker has set the mark since: then it is closed here too.
        was_open = is_open()
        if was_open and await self._is_over(intent):
            await self.intents.finished(intent)
            return
        # A request may finish the same deletion while this one waits, and a client may make the topic anew: the next call
        # finds its list without the mark.
        await self._registry.shut(
            name,
            partial(self._go_on, intent),
            force=True,
            wanted=lambda: self._is_pending(intent) and (was_open or not is_open()),
        )

    async def _go_on(self, intent: Intent) -> None:
        if await self._is_over(intent):
            await self.intents.finished(intent)
        else:
            await self._carry_out(intent)

    async def _is_over(self, intent: Intent) -> bool:
        """Returns True where the last step was done: the mark is gone, and what has its name now is another thing."""
        is_marked = await self._is_marked(intent)
        if is_marked is False:
            # Each start makes `public/default` where it is missing.
            log.warning("! %s %s was made anew after its deletion and stays", intent.kind, intent.name)
        return not is_marked

    async def _is_marked(self, intent: Intent) -> bool | None:
        """Returns False for a thing that is there without the mark that its deletion has set, None for a missing one.

        True for one that has the mark, and for deletions that set none.
        """
        if intent.kind is DeletedKind.NAMESPACE:
            # Not as this broker has it in memory: another one may have set the mark, or removed the namespace.
            found = await self._environment.metadata.get(f"{NAMESPACES_ROOT}/{intent.name}")
            return None if found is None else bool(json.loads(found.value).get(DELETED))
        if intent.kind is DeletedKind.TENANT:
            return True
        name = parse_topic_name(intent.name)
        if intent.kind is DeletedKind.PARTITIONED:
            if not intent.marked:
                return True
            stored = await self._partitions.find(name)
            return None if stored is None else stored.deleted
        if not name.is_persistent:
            return True
        found = await self._environment.metadata.get(managed_ledger_key(name.ledger_name))
        return None if found is None else decode_ledger_list(found.value).deleted

    def _is_pending(self, intent: Intent) -> bool:
        # This one, and not a later deletion of the same name.
        return self.intents.pending.get((intent.kind, intent.name)) is intent

    async def close(self) -> None:
        """Ends the deletions that run, before the topics are closed; the next start goes on with them."""
        # At once: no topic is opened or deleted while these end.
        self._registry.closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
