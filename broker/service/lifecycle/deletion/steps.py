"""DeletionSteps: the steps of each kind of deletion, in their order. Each can be repeated, and an interrupted one is.

    topic        schema, policies, log
    partitioned  partitions, schema, policies, metadata
    namespace    topics, partitioned, schemas, namespace
    tenant       namespaces, tenant

The last step removes the key by which the deleted thing is known. So it is known as long as something of it is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.removal.deletion import decide_deletion, delete_managed_ledger
from broker.service.lifecycle.deletion.intents import DeletedKind, Intent, Intents
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import MetadataError, ServiceNotReady, TopicNotFound
from foundation.model.topic_name import NON_PERSISTENT, PERSISTENT, TopicName, parse_topic_name

AT_ONCE: Final = 3
"""Topics or schemas that are deleted at the same time.

With 10, messages of other topics wait 3.4 times as long as without a deletion; with 3, 1.3 times (99th percentile).
"""

ROUNDS_MAX: Final = 20
"""Lists of a namespace's topics that are gone through for one attempt to delete it."""
PAUSE: Final = 2.0
"""Length of the pause after a slice, in lengths of that slice."""
PAUSE_S_MAX: Final = 0.01
"""Seconds of the longest pause: where the store is slow, the waits for it are pauses already."""

Work = Callable[[], Awaitable[None]]
Step = tuple[str, Callable[[Intent], Awaitable[None]]]
"""Name, for tests and logs, and the call."""


class DeletionSteps:
    """Carries deletions out, step by step."""

    def __init__(
        self,
        environment: ManagedLedgerEnvironment,
        registry: TopicRegistry,
        intents: Intents,
        delete_namespace: Callable[[str], Awaitable[None]],
    ) -> None:
        """`delete_namespace` carries out the deletion of a whole namespace, for the deletion of its tenant."""
        self._environment = environment
        self._namespaces = registry.namespaces
        self._partitions = registry.partitions
        self._schemas = registry.schemas
        self._registry = registry
        self._intents = intents
        self._delete_whole_namespace = delete_namespace
        self._by_kind: dict[DeletedKind, Sequence[Step]] = {
            DeletedKind.TOPIC: (
                ("schema", self._forget_schema),
                ("policies", self._forget_policies),
                ("log", self._delete_log),
            ),
            DeletedKind.PARTITIONED: (
                ("partitions", self._delete_partitions),
                ("schema", self._forget_schema),
                ("policies", self._forget_policies),
                ("metadata", self._delete_metadata),
            ),
            DeletedKind.NAMESPACE: (
                ("topics", self._delete_topics),
                ("partitioned", self._delete_partitioned),
                ("schemas", self._forget_schemas),
                ("namespace", self._delete_namespace),
            ),
            DeletedKind.TENANT: (
                ("namespaces", self._delete_namespaces),
                ("tenant", self._delete_tenant),
            ),
        }

    def of(self, kind: DeletedKind) -> Sequence[Step]:
        """Returns the steps of a kind, in order."""
        return self._by_kind[kind]

    async def _forget_schema(self, intent: Intent) -> None:
        if intent.schema:
            await self._schemas.forget(parse_topic_name(intent.name))

    async def _forget_policies(self, intent: Intent) -> None:
        name = parse_topic_name(intent.name)
        # Those of a partition belong to its partitioned topic.
        if name.partition < 0 and self._namespaces.exists(name.namespace):
            await self._namespaces.topic_deleted(intent.name)

    async def _delete_log(self, intent: Intent) -> None:
        await self._delete_log_of(parse_topic_name(intent.name), intent)

    async def _delete_log_of(self, name: TopicName, intent: Intent) -> None:
        if name.is_persistent:
            environment = self._environment
            # The registry shields it from the end of its caller.
            async with self._intents.while_owned(intent):
                await self._registry.shadows.own_partition(name)
                if name.has_policy_events:
                    # Other brokers follow its events. By the mark they do not open it for that while it goes.
                    await decide_deletion(name.ledger_name, environment.metadata)
                await delete_managed_ledger(
                    name.ledger_name, environment.metadata, environment.ledgers, environment.open_tier
                )

    async def _delete_partitions(self, intent: Intent) -> None:
        name = parse_topic_name(intent.name)
        # The topic may have grown while its deletion was decided.
        count = max(intent.partitions, await self._partitions.count(name))
        await self._shut_all([str(name.with_partition(index)) for index in range(count)], intent)

    async def _delete_metadata(self, intent: Intent) -> None:
        await self._partitions.delete(parse_topic_name(intent.name), marked=intent.marked)

    async def _delete_topics(self, intent: Intent) -> None:
        # Again and again, because a topic may have been in creation when the deletion was decided.
        before: list[str] = []
        for _ in range(ROUNDS_MAX):
            # One that began before the decision may not be stored yet, and would be left in a namespace that is gone.
            await self._registry.openings_ended(intent.name)
            names = await self._registry.names(intent.name)
            if not names:
                return
            if names == before and (foreign := await self._foreign(names)):
                # A key that another program has written in its own way, for example with %7E for ~.
                raise MetadataError(
                    f"namespace {intent.name} has topics under keys that this broker does not write, such as that of"
                    f" {foreign}: remove these nodes from the metadata store"
                )
            await self._shut_all(names, intent)
            before = names
        raise ServiceNotReady(
            f"Topics of namespace {intent.name} are made anew while it is deleted, such as {before[0]}; ask again"
        )

    async def _foreign(self, names: Sequence[str]) -> str:
        """Returns a name that is neither open here nor stored under its own key; empty where there is none."""
        for text in names:
            key = managed_ledger_key(parse_topic_name(text).ledger_name)
            if text not in self._registry.topics and await self._environment.metadata.get(key) is None:
                return text
        return ""

    async def _shut_all(self, names: Sequence[str], whole: Intent) -> None:
        await self._in_slices([partial(self._shut_one, name, whole) for name in names])

    async def _shut_one(self, text: str, whole: Intent) -> None:
        name = parse_topic_name(text)
        try:
            # Any broker may have opened the topic with policies, and changes of its list tell the others.
            is_own = name.has_policy_events or not await self._registry.ownership.delete_elsewhere(name)
            # One that has moved may be open here too.
            if is_own or text in self._registry.topics:
                await self._registry.shut(name, partial(self._delete_log_of, name, whole), force=True)
        except TopicNotFound:
            return  # A non-persistent topic ends with its last client.
        intent = self._intents.pending.get((DeletedKind.TOPIC, str(name)))
        if intent is not None:
            # An interrupted deletion of the topic alone; the present one has done its work.
            await self._intents.finished(intent)

    async def _delete_partitioned(self, intent: Intent) -> None:
        for domain in (PERSISTENT, NON_PERSISTENT):
            names = [parse_topic_name(text) for text in await self._partitions.names(intent.name, domain)]
            await self._in_slices([partial(self._partitions.delete, name) for name in names])

    async def _forget_schemas(self, intent: Intent) -> None:
        # By the store: topics without storage may have left a schema.
        ids = await self._schemas.registry.ids(intent.name)
        await self._in_slices([partial(self._schemas.registry.forget, schema_id) for schema_id in ids])

    async def _delete_namespace(self, intent: Intent) -> None:
        # Those that other brokers have left, too.
        await self._intents.refresh()
        for other in list(self._intents.pending.values()):
            # Deletions inside of the namespace that were interrupted; nothing is left of their topics.
            if (
                other.kind in (DeletedKind.TOPIC, DeletedKind.PARTITIONED)
                and _namespace_of(other) == intent.name
            ):
                await self._intents.finished(other)
        if self._namespaces.exists(intent.name):
            await self._namespaces.delete(intent.name)

    async def _delete_namespaces(self, intent: Intent) -> None:
        for namespace in self._namespaces.names(intent.name):
            await self._delete_whole_namespace(namespace)

    async def _delete_tenant(self, intent: Intent) -> None:
        if self._namespaces.tenant_exists(intent.name):
            await self._namespaces.delete_tenant(intent.name)

    async def _in_slices(self, calls: Sequence[Work]) -> None:
        """Makes the calls, AT_ONCE at a time. Raises the first error after the others of its slice have ended.

        The pauses leave most of the loop, the interpreter and the disk to clients: without them the deletion of 10,000
        topics takes 2 s, in which messages of other topics wait for 60 ms.
        """
        now_ns = self._environment.now_ns
        for start in range(0, len(calls), AT_ONCE):
            began_ns = now_ns()
            outcomes = await asyncio.gather(
                *(call() for call in calls[start : start + AT_ONCE]), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            await asyncio.sleep(min((now_ns() - began_ns) / 1e9 * PAUSE, PAUSE_S_MAX))


def _namespace_of(intent: Intent) -> str:
    return parse_topic_name(intent.name).namespace
