"""Deletions: decides deletions, carries them out in a fixed order, and goes on with those that were interrupted.

    decide     one write: the intent, and the mark that forbids the use of the deleted thing
    steps      those of `DeletionSteps`, in order; each can be repeated
    finish     the intent goes last

    topic        the mark is "deleted" in the list of its log
    namespace    the mark is "deleted" in its policies
    others       the intent itself, which `check_open` and `Namespaces.is_ending` obey

A step that fails leaves the intent. `resume` tries again: at the start of a broker and every minute after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from functools import partial

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import decode_ledger_info, managed_ledger_key
from broker.managed_ledger.removal.deletion import decide_deletion
from broker.service.lifecycle.deletion.intents import Intent, Intents, Kind
from broker.service.lifecycle.deletion.steps import DeletionSteps, Work
from broker.service.namespaces.namespaces import DELETED, NamespaceNotFound, NotEmpty
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import BrokerError, ServiceNotReady, TopicNotFound
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
        self._running: dict[tuple[Kind, str], asyncio.Task[None]] = {}
        self._resuming = False
        self._asked: Counter[str] = Counter()
        """Requests under way, by tenant or namespace."""
        registry.namespaces.is_ending = self._is_ending
        registry.check_open = self.check_open
        self._steps = DeletionSteps(environment, registry, self)

    @property
    def waiting(self) -> bool:
        """True while a deletion is decided and not finished."""
        return bool(self.intents.pending)

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

        TopicBusy while clients are connected, unless forced; TopicNotFound for a missing topic; MetadataError.
        """
        await self._registry.shut(name, partial(self._topic_shut, name), force=force)

    async def _topic_shut(self, name: TopicName) -> None:
        intent = self.intents.pending.get((Kind.TOPIC, str(name)))
        if intent is None:
            intent = Intent(
                Kind.TOPIC, str(name), self._environment.wall_ms(), schema=await self._owns_schema(name)
            )
            await self._decide_topic(name, intent)
        await self._carry_out(intent)

    async def _decide_topic(self, name: TopicName, intent: Intent) -> None:
        if not name.is_persistent:
            await self.intents.decide(intent)
            return
        beside = (self.intents.put(intent),)
        if not await decide_deletion(name.ledger_name, self._environment.metadata, beside):
            raise TopicNotFound(f"Topic {name} does not exist")
        self.intents.decided(intent)

    async def _owns_schema(self, name: TopicName) -> bool:
        """Returns False for a partition, and while the other domain has a topic of the name: it shares the schema."""
        if await self._partitions.count(name.base):
            return False
        other = replace(name, domain=NON_PERSISTENT if name.is_persistent else PERSISTENT)
        return not await self._registry.exists(other)

    async def partitioned(self, name: TopicName, count: int) -> None:
        """Deletes a partitioned topic; clients of its partitions are disconnected. Raises BrokerError; repeat it then."""
        other = replace(name, domain=NON_PERSISTENT if name.is_persistent else PERSISTENT)
        schema = not await self._registry.exists(other)
        intent = Intent(Kind.PARTITIONED, str(name), self._environment.wall_ms(), count, schema)
        await self._run(intent, partial(self.intents.decide, intent))

    async def forget_partitioned(self, name: TopicName) -> None:
        """Deletes metadata, schema and policies of a partitioned topic, unless one of its partitions exists."""
        count = await self._partitions.count(name)
        for index in range(count):
            partition = name.with_partition(index)
            if str(partition) in self._registry.topics or await self._registry.is_stored(partition):
                return
        await self.partitioned(name, count)

    async def namespace(self, namespace: str, *, force: bool) -> None:
        """Deletes a namespace, with its topics if forced. NamespaceNotFound; NotEmpty for one with topics."""
        if not self._namespaces.exists(namespace):
            raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
        # From here on no topic is created in it, so an empty namespace stays empty.
        self._asked[namespace] += 1
        try:
            if not force:
                await self._check_empty(namespace)
            intent = Intent(Kind.NAMESPACE, namespace, self._environment.wall_ms())
            await self._run(intent, partial(self._decide_namespace, intent))
        finally:
            self._asked[namespace] -= 1

    def _is_ending(self, name: str) -> bool:
        """See `Namespaces.is_ending`. A decided deletion counts until its intent is gone, also after a restart."""
        has = self.intents.has
        return self._asked[name] > 0 or has(Kind.NAMESPACE, name) or has(Kind.TENANT, name)

    async def _check_empty(self, namespace: str) -> None:
        await self._registry.openings_ended(namespace)
        if await self._registry.names(namespace) or await self._partitions.names(namespace):
            raise NotEmpty("Cannot delete non empty namespace")

    async def _decide_namespace(self, intent: Intent) -> None:
        await self._namespaces.mark_deleted(intent.name, self.intents.put(intent))
        self.intents.decided(intent)

    async def tenant(self, tenant: str, *, force: bool) -> None:
        """Deletes a tenant, with its namespaces if forced. NamespaceNotFound; NotEmpty for one with namespaces."""
        if not force or not self._namespaces.tenant_exists(tenant):
            await self._namespaces.delete_tenant(tenant)
            return
        intent = Intent(Kind.TENANT, tenant, self._environment.wall_ms())
        self._asked[tenant] += 1
        try:
            await self._run(intent, partial(self.intents.decide, intent))
        finally:
            self._asked[tenant] -= 1

    # Carried out

    async def _run(self, intent: Intent, decide: Work) -> None:
        """Decides unless that was done, and carries out; a cancelled caller does not end it. Calls of one name share it."""
        key = intent.kind, intent.name
        task = self._running.get(key)
        if task is None:
            task = asyncio.ensure_future(
                self._decide_and_carry_out(self.intents.pending.get(key), intent, decide)
            )
            self._running[key] = task
            task.add_done_callback(partial(self._ended, key))
        await asyncio.shield(task)

    async def _decide_and_carry_out(self, pending: Intent | None, intent: Intent, decide: Work) -> None:
        if pending is None:
            await decide()
        await self._carry_out(pending or intent)

    def _ended(self, key: tuple[Kind, str], task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled():
            # Marks an error as seen: the caller may have been cancelled, and the intent is there for the next attempt.
            task.exception()

    async def _carry_out(self, intent: Intent) -> None:
        for _, step in self._steps.of(intent.kind):
            await step(intent)
        await self.intents.finished(intent)

    # Interrupted

    async def open(self) -> None:
        """Reads the decided deletions; `resume` goes on with them. Raises MetadataError."""
        await self.intents.open()

    def check_open(self, name: TopicName) -> None:
        """Raises TopicNotFound or ServiceNotReady for a topic whose deletion is decided."""
        pending = self.intents.pending
        if not pending:
            return
        if (Kind.NAMESPACE, name.namespace) in pending:
            raise TopicNotFound("Namespace not found")
        if (Kind.TOPIC, str(name)) in pending or (Kind.PARTITIONED, str(name.base)) in pending:
            raise ServiceNotReady(f"Topic {name} is being deleted; ask again")

    async def resume(self) -> None:
        """Goes on with every decided deletion that is not running. Failures are logged; the next call tries again.

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
        # In the order of the kinds: a tenant's namespaces may have an intent of their own.
        for intent in sorted(self.intents.pending.values(), key=lambda one: list(Kind).index(one.kind)):
            if (intent.kind, intent.name) in self._running or not self.intents.has(intent.kind, intent.name):
                continue
            try:
                await self._resume(intent)
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
        if intent.kind is Kind.TOPIC:
            await self._resume_topic(parse_topic_name(intent.name), intent)
        elif intent.kind is Kind.NAMESPACE and self._namespaces.exists(intent.name):
            if self._namespaces.policy(intent.name, DELETED):
                await self.namespace(intent.name, force=True)
            else:
                # Its deletion has removed everything else before; each start makes `public/default` where it is missing.
                log.warning("! namespace %s was made anew after its deletion and stays", intent.name)
                await self.intents.finished(intent)
        elif intent.kind is Kind.TENANT and self._namespaces.tenant_exists(intent.name):
            await self.tenant(intent.name, force=True)
        else:
            await self._run(intent, _nothing)

    async def _resume_topic(self, name: TopicName, intent: Intent) -> None:
        if name.is_persistent:
            found = await self._environment.metadata.get(managed_ledger_key(name.ledger_name))
            if not self._is_pending(intent):
                return
            if found is not None and not decode_ledger_info(found.value).deleted:
                log.warning("! %s was made anew after its deletion and stays", name)
                await self.intents.finished(intent)
                return
            # A request may finish the same deletion while this one waits, and a client may make the topic anew.
            await self._registry.shut(
                name, partial(self._carry_out, intent), force=True, wanted=partial(self._is_pending, intent)
            )
        else:
            await self._run(intent, _nothing)

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


async def _nothing() -> None:
    """The decision of an intent that is stored already."""
